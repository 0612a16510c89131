package acp

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spawnmesh/spawnmesh/commands"
)

// How long an agent may take to end: after the end of its input, and after TERM.
const (
	endPatience  = time.Second
	termPatience = 2 * time.Second
)

// An agent is the coding agent, in a process group of its own.
type agent struct {
	cmd  *exec.Cmd
	out  *os.File // what it writes
	in   io.WriteCloser
	done chan struct{} // closed once it has ended

	unread, closed chan struct{} // what it writes is not read any more; and is closed
}

func startAgent(argv, env []string, dir string, stderr io.Writer) (*agent, error) {
	ours, theirs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	a := &agent{cmd: exec.Command(argv[0], argv[1:]...), out: ours, done: make(chan struct{}), unread: make(chan struct{}), closed: make(chan struct{})}
	a.cmd.Env, a.cmd.Dir, a.cmd.Stdout, a.cmd.Stderr, a.cmd.WaitDelay = env, dir, theirs, stderr, time.Second
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if a.in, err = a.cmd.StdinPipe(); err == nil {
		err = a.cmd.Start()
	}
	if err != nil {
		ours.Close()
		return nil, err
	}
	go a.wait()
	return a, nil
}

// wait waits for its end. What it has written before is read still; what it has left behind may hold the pipe for ever.
func (a *agent) wait() {
	defer close(a.closed)
	_ = a.cmd.Wait()
	close(a.done)
	select {
	case <-a.unread:
	case <-time.After(endPatience):
	}
	_ = a.out.Close()
}

// ended says how it has ended, where it has or does within the time.
func (a *agent) ended(within time.Duration) (how string, code int, ok bool) {
	select {
	case <-a.done:
	case <-time.After(within):
		return "", 0, false
	}
	status := a.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return "ended by " + unix.SignalName(status.Signal()), -1, true
	}
	return fmt.Sprintf("ended with exit code %d", status.ExitStatus()), status.ExitStatus(), true
}

// stop ends it, and what it has started in its group: first it may end by itself.
func (a *agent) stop() {
	_ = a.in.Close()
	if _, _, ok := a.ended(endPatience); !ok {
		_ = syscall.Kill(-a.cmd.Process.Pid, syscall.SIGTERM)
		a.ended(termPatience)
	}
	_ = syscall.Kill(-a.cmd.Process.Pid, syscall.SIGKILL)
	close(a.unread)
	<-a.closed
}

// cannotStart is why a program was not started.
func cannotStart(argv []string, err error) end {
	if inner, ok := errors.AsType[*exec.Error](err); ok {
		err = inner.Err
	}
	return end{code: Unavailable, final: true, reason: fmt.Sprintf("the agent %s cannot be started: %v; install it on this host", commands.Clip(argv[0]), err)}
}

// lastWords are the last lines that an agent has written to its standard error.
func lastWords(t *tail) string {
	text, _ := t.text()
	lines := strings.Split(strings.TrimSpace(plain(text)), "\n")
	text = commands.OneLine(strings.Join(lines[max(0, len(lines)-3):], " / "))
	if text == "" {
		return ""
	}
	return ": " + commands.Clean(text, 600)
}
