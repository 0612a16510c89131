package acp

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/spawnmesh/spawnmesh/spoke/acp/wire"
)

const (
	maxTerminals = 64      // that are not released
	keptOutput   = 1 << 20 // of each, where the agent names no limit
	mostOutput   = 4 << 20
)

// terminals are programs that the agent has run for itself.
type terminals struct {
	files *files
	mu    sync.Mutex
	over  bool
	n     int
	list  map[wire.TerminalID]*terminal
}

type terminal struct {
	cmd  *exec.Cmd
	out  *tail
	done chan struct{} // closed once exit is known
	exit wire.TerminalExitStatus
}

func (t *terminals) create(r wire.CreateTerminalRequest) (resp wire.CreateTerminalResponse, err error) {
	name := "."
	if r.Cwd != "" {
		if name, err = t.files.within(r.Cwd); err != nil {
			return resp, err
		}
	}
	at, err := t.files.root.Open(name) // no link leads out of it, and what was opened is where it runs
	if err != nil {
		return resp, about(r.Cwd, err)
	}
	defer at.Close()
	limit := int64(keptOutput)
	if r.OutputByteLimit != nil {
		limit = min(max(0, *r.OutputByteLimit), mostOutput)
	}
	argv := append([]string{r.Command}, r.Args...)
	if _, err := exec.LookPath(r.Command); err != nil && len(r.Args) == 0 { // some agents give a whole line
		argv = []string{"sh", "-c", r.Command}
	}
	one := &terminal{cmd: exec.Command(argv[0], argv[1:]...), out: &tail{most: int(limit)}, done: make(chan struct{})}
	one.cmd.Dir = fmt.Sprintf("/proc/self/fd/%d", at.Fd())
	one.cmd.Env = append(os.Environ(), "PWD="+filepath.Join(t.files.dirs[0], name))
	for _, v := range r.Env {
		one.cmd.Env = append(one.cmd.Env, v.Name+"="+v.Value)
	}
	one.cmd.Stdout, one.cmd.Stderr, one.cmd.WaitDelay = one.out, one.out, time.Second
	one.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return resp, errors.New("it is being ended")
	}
	if len(t.list) >= maxTerminals {
		return resp, invalid("there are %d terminals already; release some", maxTerminals)
	}
	if err := one.cmd.Start(); err != nil {
		return resp, invalid("%s: %v", r.Command, err)
	}
	go one.wait()
	t.n++
	resp.TerminalID = wire.TerminalID("t" + strconv.Itoa(t.n))
	t.list[resp.TerminalID] = one
	return resp, nil
}

func (one *terminal) wait() {
	defer close(one.done)
	_ = one.cmd.Wait()
	if status, ok := one.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		one.exit.Signal = unix.SignalName(status.Signal())
		return
	}
	code := int64(one.cmd.ProcessState.ExitCode())
	one.exit.ExitCode = &code
}

// kill ends the program, and what it has started and not sent away.
func (one *terminal) kill() {
	select {
	case <-one.done: // its number may be another's by now
	default:
		_ = syscall.Kill(-one.cmd.Process.Pid, syscall.SIGKILL)
	}
}

func (t *terminals) get(id wire.TerminalID) (*terminal, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if one := t.list[id]; one != nil {
		return one, nil
	}
	return nil, problem(wire.NotFound, "there is no terminal %q", id)
}

func (t *terminals) output(id wire.TerminalID) (r wire.TerminalOutputResponse, err error) {
	one, err := t.get(id)
	if err != nil {
		return r, err
	}
	r.Output, r.Truncated = one.out.text()
	select {
	case <-one.done:
		r.ExitStatus = &one.exit
	default:
	}
	return r, nil
}

func (t *terminals) wait(ctx context.Context, id wire.TerminalID) (r wire.WaitForTerminalExitResponse, err error) {
	one, err := t.get(id)
	if err != nil {
		return r, err
	}
	select {
	case <-one.done:
		return wire.WaitForTerminalExitResponse(one.exit), nil
	case <-ctx.Done():
		return r, errors.New("it is being ended")
	}
}

func (t *terminals) kill(id wire.TerminalID) error {
	one, err := t.get(id)
	if err == nil {
		one.kill()
	}
	return err
}

func (t *terminals) release(id wire.TerminalID) error {
	one, err := t.get(id)
	if err == nil {
		one.kill()
		t.mu.Lock()
		delete(t.list, id)
		t.mu.Unlock()
	}
	return err
}

func (t *terminals) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	for _, one := range t.list {
		one.kill()
	}
}

// A tail keeps the last bytes that were written.
type tail struct {
	most int
	mu   sync.Mutex
	kept []byte
	cut  bool
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, p[max(0, len(p)-t.most):]...)
	t.cut = t.cut || len(p) > t.most
	if over := len(t.kept) - t.most; over > 0 {
		t.cut = true
		t.kept = t.kept[:copy(t.kept, t.kept[over:])]
	}
	return len(p), nil
}

// text is what is kept, from its first whole character on.
func (t *tail) text() (string, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.kept
	for t.cut && len(b) > 0 && !utf8.RuneStart(b[0]) {
		b = b[1:]
	}
	return string(b), t.cut
}
