package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
	"github.com/spawnmesh/spawnmesh/store"
)

func (a *app) demoCommand() *cobra.Command {
	var once bool
	c := &cobra.Command{
		Use: "demo", Short: "A tour: a hub and two spokes on this machine, for real", Args: cobra.NoArgs,
		Long: `Run a hub and two spokes on this machine, each with its own Postgres and message
server, join them with real tokens, and spawn, follow, refuse, kill and recover
real processes. Everything is in a temporary directory and ends with the demo.

It stays up until interrupted, and ends with exit code 0; with --once it ends after
the tour, with exit code 0 only if every step held.`,
		RunE: func(c *cobra.Command, _ []string) error { return a.demo(c.Context(), once) },
	}
	c.Flags().BoolVar(&once, "once", false, "end after the tour")
	return c
}

// tour is the demo under way.
type tour struct {
	a     *app
	self  string // the path of this program
	m     *mesh
	n     int
	began time.Time
}

func (a *app) demo(ctx context.Context, once bool) (err error) {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	t := &tour{a: a, self: self, began: time.Now()}
	fmt.Fprintln(a.out, "A hub and two spokes will run on this machine, in a temporary directory. Press Ctrl-C to end it at any time.")
	t.step("A hub starts, with a Postgres and a message server of its own.")
	t.m, err = newMesh(ctx, self, "demo")
	if t.m != nil {
		defer func() { err = errors.Join(err, t.end(ctx)) }()
	}
	if err == nil {
		err = t.walk(ctx)
	}
	if !once && ctx.Err() != nil {
		return nil // whoever looks on has seen enough
	}
	if err != nil || once {
		return err
	}
	fmt.Fprintf(a.out, `
It is still up. Paste into another terminal:

  %s
  %s

Press Ctrl-C here to end it.
`, t.command("agents"), t.command("spawn", "--spoke", "attic", "--follow", "--", "sh", "-c", "date; uname -a"))
	<-ctx.Done()
	return nil
}

// walk takes every step of the tour.
func (t *tour) walk(ctx context.Context) error {
	t.say("it serves; its data is in %s", t.m.hub.dir)
	for _, part := range []func(context.Context) error{t.join, t.spawn, t.refuse, t.kill, t.adopt, t.results} {
		if err := part(ctx); err != nil {
			return fmt.Errorf("step %d did not hold: %w", t.n, err)
		}
	}
	fmt.Fprintf(t.a.out, "\nEvery step held (%.0f s).\n", time.Since(t.began).Seconds())
	return nil
}

// end stops every process and removes the directory.
func (t *tour) end(ctx context.Context) error {
	fmt.Fprintln(t.a.out, "\nStopping the spokes and the hub ...")
	if err := t.m.stop(ctx); err != nil {
		return err
	}
	fmt.Fprintln(t.a.out, "Everything has ended and", t.m.dir, "is removed.")
	return nil
}

// command is a call of this program about the hub, as a shell takes it.
func (t *tour) command(args ...string) string {
	return shellLine(append([]string{t.self, "--data-dir", t.m.hub.dir}, args...))
}

func (t *tour) step(text string) {
	t.n++
	fmt.Fprintf(t.a.out, "\n%d. %s\n", t.n, text)
}

func (t *tour) say(format string, args ...any) {
	fmt.Fprintf(t.a.out, "   "+format+"\n", args...)
}

func (t *tour) join(ctx context.Context) error {
	t.step("Two spokes join with one-use tokens. Each decides for itself what may run.")
	for _, pair := range [][2]string{{"attic", "open"}, {"cellar", "commands"}} {
		name, preset := pair[0], pair[1]
		if err := t.m.addSpoke(ctx, name, policy.Presets[preset]); err != nil {
			return err
		}
		var v hub.SpokeView
		if err := t.m.ctl.Do(ctx, "GET", "/v1/connections/"+name, nil, &v); err != nil {
			return err
		}
		t.say("%s has joined: its instance id is %s, its policy is the preset %q", name, v.Peer, preset)
	}
	return nil
}

// order spawns argv on a spoke and returns the agent's id.
func (t *tour) order(ctx context.Context, spokeName, title string, argv ...string) (string, error) {
	var got hub.SpawnAnswer
	req := hub.SpawnRequest{Spoke: spokeName, Spawn: commands.Spawn{Title: title, Runtime: commands.RuntimeExec, Argv: argv}}
	if err := t.m.ctl.Do(ctx, "POST", "/v1/agents", req, &got); err != nil {
		return "", err
	}
	t.say("$ %s", t.command(append([]string{"spawn", "--spoke", spokeName, "--"}, argv...)...))
	return got.ID, nil
}

// await waits for an agent's end and checks where it led.
func (t *tour) await(ctx context.Context, id string, want commands.State) (hub.AgentView, error) {
	ctx, done := context.WithTimeout(ctx, time.Minute)
	defer done()
	v, err := t.a.await(ctx, t.m.ctl, id)
	if err != nil {
		return v, err
	}
	if v.State != want {
		return v, fmt.Errorf("agent %s is %s, not %s", id, sentence(v), want)
	}
	return v, nil
}

func (t *tour) spawn(ctx context.Context) error {
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
		lines := 0
		err = t.m.ctl.Stream(ctx, "/v1/agents/"+id+"/logs?follow=true", func(raw json.RawMessage) error {
			var p logPiece
			if err := json.Unmarshal(raw, &p); err != nil {
				return err
			}
			for line := range strings.Lines(string(p.Data)) {
				lines++
				t.say("%s | %s", name, strings.TrimSpace(line))
			}
			return nil
		})
		if err != nil {
			return err
		}
		if _, err := t.await(ctx, id, commands.Completed); err != nil {
			return err
		}
		if lines == 0 {
			return fmt.Errorf("no output of agent %s arrived", id)
		}
	}
	return nil
}

func (t *tour) refuse(ctx context.Context) error {
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
		return fmt.Errorf("agent %s %s", id, sentence(v))
	}
	t.say("it %s", sentence(v))
	return nil
}

func (t *tour) kill(ctx context.Context) error {
	t.step("The hub kills an agent that ignores SIGTERM and hides a child in another session.")
	id, err := t.order(ctx, "attic", "", "sh", "-c", `trap "" TERM; setsid sleep 600 & sleep 600`)
	if err != nil {
		return err
	}
	if err := t.running(ctx, id); err != nil {
		return err
	}
	req := map[string]any{"reason": "the tour goes on", "grace_ms": 500}
	if err := t.m.ctl.Do(ctx, "POST", "/v1/agents/"+id+"/kill", req, nil); err != nil {
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

func (t *tour) running(ctx context.Context, id string) error {
	return poll(ctx, 20*time.Second, "waiting for agent "+id+" to run", func() (bool, error) {
		var v hub.AgentView
		err := t.m.ctl.Do(ctx, "GET", "/v1/agents/"+url.PathEscape(id), nil, &v)
		return v.State == commands.Running, err
	})
}

func (t *tour) adopt(ctx context.Context) error {
	t.step("attic itself is killed (SIGKILL) while its agent works, and started again.")
	trace := filepath.Join(t.m.dir, "trace")
	id, err := t.order(ctx, "attic", "", "sh", "-c", "echo started >> "+trace+"; sleep 3; echo ended >> "+trace)
	if err != nil {
		return err
	}
	if err := t.running(ctx, id); err != nil {
		return err
	}
	attic := t.m.spokes["attic"]
	attic.kill()
	t.say("attic is dead; the agent works on, held by its own small supervisor (the shim)")
	if err := attic.start(ctx); err != nil {
		return err
	}
	t.say("attic is back and adopts the running agent")
	if _, err := t.await(ctx, id, commands.Completed); err != nil {
		return err
	}
	raw, err := os.ReadFile(trace)
	if err != nil {
		return fmt.Errorf("reading the agent's own trace: %w", err)
	}
	if string(raw) != "started\nended\n" {
		return fmt.Errorf("the agent's own trace says %q", raw)
	}
	t.say("the agent's own trace: started once, ended once")
	return nil
}

func (t *tour) results(ctx context.Context) error {
	t.step("What the hub now knows, from receipts and results that the spokes signed:")
	var list []store.Mirror
	if err := t.m.ctl.Do(ctx, "GET", "/v1/agents", nil, &list); err != nil {
		return err
	}
	fmt.Fprintln(t.a.out)
	for _, m := range list {
		if !m.State.Terminal() {
			return fmt.Errorf("agent %s is still %s", m.Task, m.State)
		}
	}
	return t.a.printAgents(list)
}
