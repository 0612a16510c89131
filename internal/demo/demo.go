// Package demo is the tour: a hub and two spokes on this machine, for real.
//
// Its tests are those of cmd/spawnmesh.
package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/internal/fleet"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
	"github.com/spawnmesh/spawnmesh/store"
)

// A Tour is the demo: what it needs of the program that shows it.
type Tour struct {
	Out   io.Writer
	Once  bool                            // ends after the last step
	Quote func(words []string) string     // writes a command as a shell takes it
	Show  func(list []store.Mirror) error // prints a listing of agents

	self  string // the path of this program
	m     *fleet.Mesh
	n     int
	began time.Time
}

// Run walks every step, and then stays up until ctx ends, unless the tour is to
// end at once. It returns an error when a step does not hold.
func (t *Tour) Run(ctx context.Context) (err error) {
	t.self, err = os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	t.began = time.Now()
	fmt.Fprintln(t.Out, "A hub and two spokes will run on this machine, in a temporary directory. Press Ctrl-C to end it at any time.")
	t.step("A hub starts, with a Postgres and a message server of its own.")
	t.m, err = fleet.New(ctx, t.self, "demo")
	if t.m != nil {
		defer func() { err = errors.Join(err, t.end(ctx)) }()
	}
	if err == nil {
		err = t.walk(ctx)
	}
	if !t.Once && ctx.Err() != nil {
		return nil // whoever looks on has seen enough
	}
	if err != nil || t.Once {
		return err
	}
	fmt.Fprintf(t.Out, `
It is still up. Paste into another terminal:

  %s
  %s

Press Ctrl-C here to end it.
`, t.command("agents"), t.command("spawn", "--spoke", "attic", "--follow", "--", "sh", "-c", "date; uname -a"))
	<-ctx.Done()
	return nil
}

// walk takes every step of the tour.
func (t *Tour) walk(ctx context.Context) error {
	t.say("it serves; its data is in %s", t.m.Hub.Dir)
	for _, part := range []func(context.Context) error{t.join, t.spawn, t.refuse, t.confine, t.kill, t.adopt, t.results} {
		if err := part(ctx); err != nil {
			return fmt.Errorf("step %d did not hold: %w", t.n, err)
		}
	}
	fmt.Fprintf(t.Out, "\nEvery step held (%.0f s).\n", time.Since(t.began).Seconds())
	return nil
}

// end stops every process and removes the directory.
func (t *Tour) end(ctx context.Context) error {
	fmt.Fprintln(t.Out, "\nStopping the spokes and the hub ...")
	if err := t.m.Stop(ctx); err != nil {
		return err
	}
	fmt.Fprintln(t.Out, "Everything has ended and", t.m.Dir, "is removed.")
	return nil
}

// command is a call of this program about the hub, as a shell takes it.
func (t *Tour) command(args ...string) string {
	return t.Quote(append([]string{t.self, "--data-dir", t.m.Hub.Dir}, args...))
}

func (t *Tour) step(text string) {
	t.n++
	fmt.Fprintf(t.Out, "\n%d. %s\n", t.n, text)
}

func (t *Tour) say(format string, args ...any) {
	fmt.Fprintf(t.Out, "   "+format+"\n", args...)
}

func (t *Tour) join(ctx context.Context) error {
	t.step("Two spokes join with one-use tokens. Each decides for itself what may run.")
	for _, pair := range [][2]string{{"attic", "open"}, {"cellar", "commands"}} {
		name, preset := pair[0], pair[1]
		if err := t.m.AddSpoke(ctx, name, policy.Presets[preset]); err != nil {
			return err
		}
		var v hub.SpokeView
		if err := t.m.Ctl.Do(ctx, "GET", "/api/v1/connections/"+name, nil, &v); err != nil {
			return err
		}
		t.say("%s has joined: its instance id is %s, its policy is the preset %q", name, v.Peer, preset)
	}
	return nil
}

// order spawns argv on a spoke and returns the agent's id.
func (t *Tour) order(ctx context.Context, spokeName, title string, argv ...string) (string, error) {
	var got hub.SpawnAnswer
	req := hub.SpawnRequest{Spoke: spokeName, Spawn: commands.Spawn{Title: title, Runtime: commands.RuntimeExec, Argv: argv}}
	if err := t.m.Ctl.Do(ctx, "POST", "/api/v1/tasks", req.Revealed(), &got); err != nil {
		return "", err
	}
	t.say("$ %s", t.command(append([]string{"spawn", "--spoke", spokeName, "--"}, argv...)...))
	return got.ID, nil
}

// await waits for an agent's end and checks where it led.
func (t *Tour) await(ctx context.Context, id string, want commands.State) (hub.AgentView, error) {
	v, err := t.m.Ended(ctx, id, time.Minute)
	if err != nil {
		return v, err
	}
	if v.State != want {
		return v, fmt.Errorf("agent %s is %s, not %s", id, v.Sentence(), want)
	}
	return v, nil
}

func (t *Tour) spawn(ctx context.Context) error {
	t.step("The hub spawns an agent on each and follows its output. An agent is any program.")
	for _, name := range []string{"attic", "cellar"} {
		argv := []string{"echo", "hello from " + name}
		if name == "attic" {
			argv = []string{"sh", "-c", "for i in 1 2 3; do echo working $i; sleep 0.2; done"}
		}
		id, err := t.order(ctx, name, "", argv...)
		if err != nil {
			return err
		}
		out, err := t.follow(ctx, id, func(line string) { t.say("%s | %s", name, line) })
		if err != nil {
			return err
		}
		if _, err := t.await(ctx, id, commands.Completed); err != nil {
			return err
		}
		if out == "" {
			return fmt.Errorf("no output of agent %s arrived", id)
		}
	}
	return nil
}

// follow reads the output of an agent to its end.
func (t *Tour) follow(ctx context.Context, id string, see func(line string)) (string, error) {
	var out strings.Builder
	err := t.m.Ctl.Follow(ctx, "/api/v1/tasks/"+id+"/logs?follow=true", func(raw json.RawMessage) error {
		var p struct{ Data []byte }
		if err := json.Unmarshal(raw, &p); err != nil {
			return err
		}
		out.Write(p.Data)
		for line := range strings.Lines(string(p.Data)) {
			see(strings.TrimSpace(line))
		}
		return nil
	})
	return out.String(), err
}

func (t *Tour) refuse(ctx context.Context) error {
	t.step("The hub asks cellar for a command that cellar's policy does not allow.")
	id, err := t.order(ctx, "cellar", "", "rm", "-rf", "build") // harmless where somebody pastes it for another spoke
	if err != nil {
		return err
	}
	v, err := t.await(ctx, id, commands.Unavailable)
	if err != nil {
		return err
	}
	if v.Reason != commands.PolicyDenied {
		return fmt.Errorf("agent %s %s", id, v.Sentence())
	}
	t.say("it %s", v.Sentence())
	return nil
}

// confine has an agent look for what it must not reach.
func (t *Tour) confine(ctx context.Context) error {
	t.step("An agent on attic looks for attic's keys and writes into attic's directory.")
	dir := t.m.Spokes["attic"].Dir
	id, err := t.order(ctx, "attic", "", "sh", "-c", "ls "+filepath.Join(dir, "keys")+"; echo mine > "+filepath.Join(dir, "planted")+"; echo it runs as user $(id -u)")
	if err != nil {
		return err
	}
	out, err := t.follow(ctx, id, func(line string) { t.say("attic | %s", line) })
	if err != nil {
		return err
	}
	v, err := t.await(ctx, id, commands.Completed)
	if err != nil {
		return err
	}
	if strings.Count(out, "denied") != 2 {
		return fmt.Errorf("the agent was not kept from attic's directory: %q", out)
	}
	t.say("it got nothing; the signed result says that it was confined by %s", v.Isolation)
	return nil
}

func (t *Tour) kill(ctx context.Context) error {
	t.step("The hub kills an agent that ignores SIGTERM and hides a child in another session.")
	id, err := t.order(ctx, "attic", "", "sh", "-c", `trap "" TERM; setsid sleep 600 & sleep 600`)
	if err != nil {
		return err
	}
	if err := t.running(ctx, id); err != nil {
		return err
	}
	req := map[string]any{"reason": "the tour goes on", "grace_ms": 500}
	if err := t.m.Ctl.Do(ctx, "POST", "/api/v1/tasks/"+id+"/kill", req, nil); err != nil {
		return err
	}
	v, err := t.await(ctx, id, commands.Cancelled)
	if err != nil {
		return err
	}
	var r commands.Result
	if err := json.Unmarshal(v.Result, &r); err != nil {
		return fmt.Errorf("reading the result: %w", err)
	}
	var names []string
	for _, p := range r.Reaped {
		names = append(names, fmt.Sprintf("%s (%d)", p.Command, p.Pid))
	}
	if len(names) == 0 || len(r.Survivors) > 0 {
		return fmt.Errorf("reaped %v, survivors %v", r.Reaped, r.Survivors)
	}
	t.say("its whole tree is gone; the signed result lists each process (pid): %s", strings.Join(names, ", "))
	return nil
}

func (t *Tour) running(ctx context.Context, id string) error {
	return fleet.Poll(ctx, 20*time.Second, "waiting for agent "+id+" to run", func() (bool, error) {
		var v hub.AgentView
		err := t.m.Ctl.Do(ctx, "GET", "/api/v1/tasks/"+url.PathEscape(id), nil, &v)
		return v.State == commands.Running, err
	})
}

func (t *Tour) adopt(ctx context.Context) error {
	t.step("attic itself is killed (SIGKILL) while its agent works, and started again.")
	id, err := t.order(ctx, "attic", "", "sh", "-c", "echo started; sleep 3; echo ended")
	if err != nil {
		return err
	}
	if err := t.running(ctx, id); err != nil {
		return err
	}
	attic := t.m.Spokes["attic"]
	attic.Kill()
	t.say("attic is dead; the agent works on, held by its own small supervisor (the shim)")
	if err := attic.Start(ctx); err != nil {
		return err
	}
	t.say("attic is back and adopts the running agent")
	if _, err := t.await(ctx, id, commands.Completed); err != nil {
		return err
	}
	out, err := t.follow(ctx, id, func(string) {})
	if err != nil {
		return err
	}
	if out != "started\nended\n" {
		return fmt.Errorf("the agent said %q", out)
	}
	t.say("all that the agent said: started once, ended once")
	return nil
}

func (t *Tour) results(ctx context.Context) error {
	t.step("What the hub now knows, from receipts and results that the spokes signed:")
	var list control.Items[store.Mirror]
	if err := t.m.Ctl.Do(ctx, "GET", "/api/v1/tasks", nil, &list); err != nil {
		return err
	}
	fmt.Fprintln(t.Out)
	for _, m := range list.Items {
		if !m.State.Terminal() {
			return fmt.Errorf("agent %s is still %s", m.Task, m.State)
		}
	}
	return t.Show(list.Items)
}
