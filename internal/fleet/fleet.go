// Package fleet runs instances as child processes: a hub and some spokes on this
// machine, each the real program in a data directory of its own, for the demo, the
// bench, and tests that end processes as a crash would.
//
// Its tests are those of cmd/spawnmesh.
package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
)

// A Process is an instance that this program runs as a child: the real thing, in a
// data directory of its own.
type Process struct {
	Name string
	Dir  string
	Args []string  // how it runs
	Env  []string  // in addition to ours
	Cmd  *exec.Cmd // nil while it is down
	Bin  string    // this program

	exit chan error

	serves bool // it has said so since it was started
}

// A Mesh is a hub and some spokes on this machine, for the demo and the bench.
type Mesh struct {
	Dir    string
	Hub    *Process
	Spokes map[string]*Process
	Ctl    *control.Client // the hub's socket

	bin string // the program that they run
}

// StartTime is how long a process may take until it serves: a cold Postgres on a
// slow disk is most of it.
const StartTime = 90 * time.Second

// stopTime is how long a process may take to stop before it is killed.
const stopTime = 30 * time.Second

// New makes a mesh and starts its hub.
func New(ctx context.Context, bin, label string, hubArgs ...string) (*Mesh, error) {
	m, err := Make(bin, label, hubArgs...)
	if err != nil {
		return nil, err
	}
	return m, m.StartHub(ctx)
}

// Make makes a directory that a database server may enter even when we are root,
// for a mesh of which nothing runs yet.
func Make(bin, label string, hubArgs ...string) (*Mesh, error) {
	dir, err := os.MkdirTemp("", "spawnmesh-"+label+"-")
	if err != nil {
		return nil, fmt.Errorf("making a directory for the mesh: %w", err)
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		return nil, fmt.Errorf("opening the mesh's directory: %w", err)
	}
	m := &Mesh{Dir: dir, bin: bin, Spokes: map[string]*Process{}}
	m.Hub = m.Process("hub", append([]string{"hub", "run", "--link", "127.0.0.1:0", "--name", "lab"}, hubArgs...)...)
	m.Ctl = control.NewClient(m.Hub.Dir)
	return m, nil
}

// StartHub starts the hub for the first time. Spokes remember where it is: it
// comes back at the same port.
func (m *Mesh) StartHub(ctx context.Context) error {
	if err := m.Hub.Start(ctx); err != nil {
		return err
	}
	link, err := os.ReadFile(filepath.Join(m.Hub.Dir, "ready"))
	if err != nil {
		return fmt.Errorf("reading the hub's address: %w", err)
	}
	m.Hub.Args[3] = strings.TrimSpace(string(link))
	return nil
}

// Process is an instance below the mesh's directory that is not started yet.
func (m *Mesh) Process(name string, args ...string) *Process {
	return &Process{Name: name, Dir: filepath.Join(m.Dir, name), Bin: m.bin, Args: args}
}

// AddSpoke invites, joins and starts a spoke with a policy preset.
func (m *Mesh) AddSpoke(ctx context.Context, name, rules string, args ...string) error {
	n := m.Process(name, append([]string{"spoke", "run"}, args...)...)
	if err := os.MkdirAll(n.Dir, 0o711); err != nil {
		return fmt.Errorf("making the directory of %s: %w", name, err)
	}
	if err := os.WriteFile(policy.File(n.Dir), []byte(rules), 0o600); err != nil {
		return fmt.Errorf("writing the policy of %s: %w", name, err)
	}
	var v hub.Invitation
	if err := m.Ctl.Do(ctx, "POST", "/api/v1/invites", map[string]string{"name": name}, &v); err != nil {
		return err
	}
	join := n.Command(ctx, "spoke", "join", "--yes")
	join.Stdin = strings.NewReader(v.Token)
	if out, err := join.CombinedOutput(); err != nil {
		return fmt.Errorf("joining as %s: %w\n%s", name, err, out)
	}
	m.Spokes[name] = n
	if err := n.Start(ctx); err != nil {
		return err
	}
	return m.AwaitLink(ctx, name)
}

// AwaitLink waits until the hub sees the spoke alive.
func (m *Mesh) AwaitLink(ctx context.Context, name string) error {
	return Poll(ctx, 30*time.Second, "waiting for the link of "+name, func() (bool, error) {
		var v hub.SpokeView
		err := m.Ctl.Do(ctx, "GET", "/api/v1/connections/"+name, nil, &v)
		return v.Linked && v.Liveness == hub.Alive, err
	})
}

// Stop ends all processes, spokes first, and removes the directory.
func (m *Mesh) Stop(ctx context.Context) error {
	var err error
	for _, n := range m.Spokes {
		err = errors.Join(err, n.Stop(ctx))
	}
	return errors.Join(err, m.Hub.Stop(ctx), os.RemoveAll(m.Dir))
}

// Command is the program for this process. A database named in our environment is
// not handed on, as it can belong to one instance only; nor is an address of the API, or a context. An interrupt at the terminal
// is for us alone; when ctx ends the program is asked to end, and stops its
// database first, and so it is when we are killed.
func (n *Process) Command(ctx context.Context, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, n.Bin, append([]string{"--data-dir", n.Dir}, args...)...)
	for _, e := range os.Environ() {
		name, _, _ := strings.Cut(e, "=")
		if name != "DATABASE_URL" && name != "SPAWNMESH_DATABASE_URL" && name != "SPAWNMESH_CONTEXT" && !strings.HasPrefix(name, "SPAWNMESH_API") {
			c.Env = append(c.Env, e)
		}
	}
	c.Env = append(c.Env, n.Env...)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	c.WaitDelay = stopTime
	return c
}

// Start runs the process and waits until it serves. Its words go to a file.
func (n *Process) Start(ctx context.Context) error {
	if err := os.MkdirAll(n.Dir, 0o711); err != nil {
		return fmt.Errorf("making the directory of %s: %w", n.Name, err)
	}
	ready := filepath.Join(n.Dir, "ready")
	if err := os.Remove(ready); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	log, err := os.OpenFile(filepath.Join(n.Dir, "log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("opening the log of %s: %w", n.Name, err)
	}
	defer log.Close()
	n.Cmd = n.Command(context.WithoutCancel(ctx), append(n.Args, "--ready-file", ready)...)
	n.Cmd.Stdout, n.Cmd.Stderr = log, log
	if err := n.Cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", n.Name, err)
	}
	n.exit, n.serves = make(chan error, 1), false
	go func(c *exec.Cmd, exit chan error) { exit <- c.Wait() }(n.Cmd, n.exit)
	return Poll(ctx, StartTime, "waiting for "+n.Name, func() (bool, error) {
		select {
		case err := <-n.exit:
			n.Cmd = nil
			return false, fmt.Errorf("%s ended: %w\n%s", n.Name, err, n.LastWords())
		default:
		}
		_, err := os.Stat(ready)
		n.serves = err == nil
		return n.serves, nil
	})
}

// LastWords is the end of what a process wrote.
func (n *Process) LastWords() string {
	raw, err := os.ReadFile(filepath.Join(n.Dir, "log"))
	if err != nil {
		return ""
	}
	return string(raw[max(0, len(raw)-2000):])
}

// Stop asks the process to end, and makes it after half a minute.
func (n *Process) Stop(ctx context.Context) error {
	if n.Cmd == nil {
		return nil
	}
	_ = n.Cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-n.exit:
		n.Cmd = nil
		if err != nil && n.serves { // one that is still starting just ends
			return fmt.Errorf("stopping %s: %w\n%s", n.Name, err, n.LastWords())
		}
		return nil
	case <-time.After(stopTime):
		n.Kill()
		return fmt.Errorf("%s did not stop within %s", n.Name, stopTime)
	}
}

// Wait returns when the process has ended by itself.
func (n *Process) Wait() {
	<-n.exit
	n.Cmd = nil
}

// Kill ends the process as a crash would.
func (n *Process) Kill() {
	if n.Cmd == nil {
		return
	}
	_ = n.Cmd.Process.Kill()
	n.Wait()
}

// Poll asks until ok, an error, or limit.
func Poll(ctx context.Context, limit time.Duration, doing string, ok func() (bool, error)) error {
	until := time.Now().Add(limit)
	for {
		done, err := ok()
		if err != nil || done {
			return err
		}
		if time.Now().After(until) {
			return fmt.Errorf("%s: nothing within %s", doing, limit)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}
