package conformance

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A program is the spoke under test: a process that may end and be started again.
type program struct {
	command []string
	dir     string // of the runner; its state is in dir/state, what it writes in dir/log
	token   string

	mu   sync.Mutex // guards the rest
	cmd  *exec.Cmd  // nil while it is down
	exit chan struct{}
	end  string // how the last process ended by itself
}

// stopTime is how long the program may take to end after TERM.
const stopTime = 30 * time.Second

// start runs the program. It leads a group of processes of its own, and is ended when
// the runner is killed.
func (p *program) start() error {
	state := filepath.Join(p.dir, "state")
	if err := os.MkdirAll(state, 0o711); err != nil {
		return fmt.Errorf("making the directory of the spoke: %w", err)
	}
	log, err := os.OpenFile(filepath.Join(p.dir, "log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("opening the log of the spoke: %w", err)
	}
	defer log.Close()
	cmd := exec.Command(p.command[0], p.command[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(environment(), "SPAWNMESH_TOKEN="+p.token, "SPAWNMESH_STATE="+state)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting the spoke %s: %w", p.command[0], err)
	}
	exit := make(chan struct{})
	p.mu.Lock()
	p.cmd, p.exit, p.end = cmd, exit, ""
	p.mu.Unlock()
	go func() {
		err := cmd.Wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.end = "ended: exit status 0"
		if err != nil {
			p.end = "ended: " + err.Error()
		}
		close(exit)
	}()
	return nil
}

// environment is ours without what belongs to one instance alone.
func environment() (list []string) {
	for _, e := range os.Environ() {
		if name, _, _ := strings.Cut(e, "="); name != "DATABASE_URL" && name != "SPAWNMESH_DATABASE_URL" && name != "SPAWNMESH_DATA_DIR" {
			list = append(list, e)
		}
	}
	return list
}

// running returns the process and what is closed at its end.
func (p *program) running() (*exec.Cmd, chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd, p.exit
}

// kill ends the program as a crash would. What it has started goes on.
func (p *program) kill() {
	if cmd, exit := p.running(); cmd != nil {
		_ = cmd.Process.Kill() // fails when it has ended
		<-exit
	}
}

// stop asks the program to end, and kills its group of processes when it does not.
func (p *program) stop() {
	cmd, exit := p.running()
	if cmd == nil {
		return
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-exit:
	case <-time.After(stopTime):
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-exit
	}
}

// ended says how the program ended, with its last words; "" while it runs.
func (p *program) ended() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.end == "" {
		return ""
	}
	return "the program " + p.end + "; it wrote: " + p.lastWords()
}

func (p *program) lastWords() string {
	raw, err := os.ReadFile(filepath.Join(p.dir, "log"))
	if err != nil || len(raw) == 0 {
		return "nothing"
	}
	return strings.TrimSpace(string(raw[max(0, len(raw)-1000):]))
}
