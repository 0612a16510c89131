package main

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

// A node is an instance that this program runs as a child: the real thing, in a
// data directory of its own.
type node struct {
	name string
	dir  string
	bin  string   // this program
	args []string // how it runs
	env  []string // in addition to ours
	cmd  *exec.Cmd
	exit chan error

	serves bool // it has said so since it was started
}

// A mesh is a hub and some spokes on this machine, for the demo and the bench.
type mesh struct {
	dir    string
	bin    string // the program that the nodes run
	hub    *node
	spokes map[string]*node
	ctl    *control.Client
}

// startTime is how long a node may take until it serves: a cold Postgres on a
// slow disk is most of it.
const startTime = 90 * time.Second

// stopTime is how long a node may take to stop before it is killed.
const stopTime = 30 * time.Second

// newMesh makes a directory that a database server may enter even when we are
// root, and starts a hub there.
func newMesh(ctx context.Context, bin, label string, hubArgs ...string) (*mesh, error) {
	dir, err := os.MkdirTemp("", "spawnmesh-"+label+"-")
	if err != nil {
		return nil, fmt.Errorf("making a directory for the mesh: %w", err)
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		return nil, fmt.Errorf("opening the mesh's directory: %w", err)
	}
	m := &mesh{dir: dir, bin: bin, spokes: map[string]*node{}}
	m.hub = m.node("hub", append([]string{"hub", "run", "--link", "127.0.0.1:0", "--name", "lab"}, hubArgs...)...)
	m.ctl = control.NewClient(m.hub.dir)
	if err := m.hub.start(ctx); err != nil {
		return m, err
	}
	// Spokes remember where the hub is: it comes back at the same port.
	link, err := os.ReadFile(filepath.Join(m.hub.dir, "ready"))
	if err != nil {
		return m, fmt.Errorf("reading the hub's address: %w", err)
	}
	m.hub.args[3] = strings.TrimSpace(string(link))
	return m, nil
}

func (m *mesh) node(name string, args ...string) *node {
	return &node{name: name, dir: filepath.Join(m.dir, name), bin: m.bin, args: args}
}

// addSpoke invites, joins and starts a spoke with a policy preset.
func (m *mesh) addSpoke(ctx context.Context, name, rules string, args ...string) error {
	n := m.node(name, append([]string{"spoke", "run"}, args...)...)
	if err := os.MkdirAll(n.dir, 0o711); err != nil {
		return fmt.Errorf("making the directory of %s: %w", name, err)
	}
	if err := os.WriteFile(policy.File(n.dir), []byte(rules), 0o644); err != nil {
		return fmt.Errorf("writing the policy of %s: %w", name, err)
	}
	var v hub.Invitation
	if err := m.ctl.Do(ctx, "POST", "/v1/invites", map[string]string{"name": name}, &v); err != nil {
		return err
	}
	join := n.command(ctx, "spoke", "join")
	join.Stdin = strings.NewReader(v.Token)
	if out, err := join.CombinedOutput(); err != nil {
		return fmt.Errorf("joining as %s: %w\n%s", name, err, out)
	}
	m.spokes[name] = n
	if err := n.start(ctx); err != nil {
		return err
	}
	return m.awaitLink(ctx, name)
}

// awaitLink waits until the hub sees the spoke alive.
func (m *mesh) awaitLink(ctx context.Context, name string) error {
	return poll(ctx, 30*time.Second, "waiting for the link of "+name, func() (bool, error) {
		var v hub.SpokeView
		err := m.ctl.Do(ctx, "GET", "/v1/connections/"+name, nil, &v)
		return v.Linked && v.Liveness == "alive", err
	})
}

// stop ends all nodes, spokes first, and removes the directory.
func (m *mesh) stop(ctx context.Context) error {
	var err error
	for _, n := range m.spokes {
		err = errors.Join(err, n.stop(ctx))
	}
	return errors.Join(err, m.hub.stop(ctx), os.RemoveAll(m.dir))
}

// command is the program for this node. A database named in our environment is
// not handed on: it can belong to one instance only. An interrupt at the terminal
// is for us alone; when ctx ends the program is asked to end, and stops its
// database first.
func (n *node) command(ctx context.Context, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, n.bin, append([]string{"--data-dir", n.dir}, args...)...)
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "DATABASE_URL=") && !strings.HasPrefix(e, "SPAWNMESH_DATABASE_URL=") {
			c.Env = append(c.Env, e)
		}
	}
	c.Env = append(c.Env, n.env...)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	c.WaitDelay = stopTime
	return c
}

// start runs the node and waits until it serves. Its words go to a file.
func (n *node) start(ctx context.Context) error {
	if err := os.MkdirAll(n.dir, 0o711); err != nil {
		return fmt.Errorf("making the directory of %s: %w", n.name, err)
	}
	ready := filepath.Join(n.dir, "ready")
	if err := os.Remove(ready); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	log, err := os.OpenFile(filepath.Join(n.dir, "log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("opening the log of %s: %w", n.name, err)
	}
	defer log.Close()
	n.cmd = n.command(context.WithoutCancel(ctx), append(n.args, "--ready-file", ready)...)
	n.cmd.Stdout, n.cmd.Stderr = log, log
	if err := n.cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", n.name, err)
	}
	n.exit, n.serves = make(chan error, 1), false
	go func(c *exec.Cmd, exit chan error) { exit <- c.Wait() }(n.cmd, n.exit)
	return poll(ctx, startTime, "waiting for "+n.name, func() (bool, error) {
		select {
		case err := <-n.exit:
			n.cmd = nil
			return false, fmt.Errorf("%s ended: %w\n%s", n.name, err, n.lastWords())
		default:
		}
		_, err := os.Stat(ready)
		n.serves = err == nil
		return n.serves, nil
	})
}

// lastWords is the end of what a node wrote.
func (n *node) lastWords() string {
	raw, err := os.ReadFile(filepath.Join(n.dir, "log"))
	if err != nil {
		return ""
	}
	return string(raw[max(0, len(raw)-2000):])
}

// stop asks the node to end, and makes it after half a minute.
func (n *node) stop(ctx context.Context) error {
	if n.cmd == nil {
		return nil
	}
	_ = n.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-n.exit:
		n.cmd = nil
		if err != nil && n.serves { // one that is still starting just ends
			return fmt.Errorf("stopping %s: %w\n%s", n.name, err, n.lastWords())
		}
		return nil
	case <-time.After(stopTime):
		n.kill()
		return fmt.Errorf("%s did not stop within %s", n.name, stopTime)
	}
}

// kill ends the node as a crash would.
func (n *node) kill() {
	if n.cmd == nil {
		return
	}
	_ = n.cmd.Process.Kill()
	<-n.exit
	n.cmd = nil
}

// poll asks until ok, an error, or limit.
func poll(ctx context.Context, limit time.Duration, doing string, ok func() (bool, error)) error {
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
