package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation/join"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/faulty"
	"github.com/spawnmesh/spawnmesh/internal/fleet"
	"github.com/spawnmesh/spawnmesh/internal/forge"
)

// A mesh is a real hub, this same program with its database, and the spoke.
type mesh struct{ *fleet.Mesh }

const spokeName = "attic"

// withHub sets up the scene with a real hub, and tries its rules.
func withHub(ctx context.Context, s *stage) (err error) {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	m, err := fleet.New(ctx, self, "conformance")
	if m != nil {
		defer func() { err = errors.Join(err, m.Stop(context.WithoutCancel(ctx))) }()
	}
	if err != nil {
		return err
	}
	proxy, err := faulty.New(m.Hub.Args[3]) // where it listens, since it was started
	if err != nil {
		return err
	}
	defer proxy.Close()
	var v hub.Invitation
	if err := m.Ctl.Do(ctx, "POST", "/api/v1/invites", map[string]string{"name": spokeName}, &v); err != nil {
		return err
	}
	token, err := join.ParseToken(v.Token)
	if err != nil {
		return err
	}
	token.Address = proxy.Addr()
	text, err := token.Text()
	if err != nil {
		return err
	}
	t := &trial{ctx: ctx, dir: s.dir, patience: s.options.Patience, proxy: proxy, mesh: &mesh{m}}
	s.tryWith(t, text)
	return nil
}

func hubRules() []Rule {
	return []Rule{
		{"hub-join", "3, 7.6", "joins a real hub with its database, which sees it linked and alive", (*trial).joinsHub},
		{"hub-spawn", "7.3, 8", "a real hub gets the end of a task and its output", func(t *trial) error {
			return t.runs("for i in 1 2 3; do echo $i; done; exit 3", commands.Failed, "1\n2\n3\n")
		}},
		{"hub-kill", "7.3", "a real hub has a running task killed", (*trial).hubKills},
		{"hub-cut", "7.2", "everything is confirmed after a link that was cut ten times under load", (*trial).hubCuts},
		{"hub-crash", "4.4, 7.2", "everything is confirmed after the hub was killed and started again", (*trial).hubCrashes},
		{"hub-keys", "7.5", "goes on when a real hub changes its signing key, and revokes the old one", (*trial).hubRotates},
		{"hub-suspends", "4.5", "goes on after a real hub has suspended and resumed the connection", (*trial).hubSuspends},
		{"hub-restored", "7.6", "agrees with a hub whose database was put back, runs nothing twice, and tells it what it lost", (*trial).hubRestored},
		{"hub-revokes", "4.5", "a real hub revokes the connection, and nothing of it links again", (*trial).hubRevokes},
	}
}

func (t *trial) joinsHub() error {
	if err := t.program.start(); err != nil {
		return err
	}
	return t.linked()
}

// do asks the hub as its operator does.
func (t *trial) do(method, path string, in, out any) error {
	return t.mesh.Ctl.Do(t.ctx, method, path, in, out)
}

// linked waits until the hub relays to the spoke.
func (t *trial) linked() error {
	return t.await(func() bool {
		var v hub.SpokeView
		return t.do("GET", "/api/v1/connections/"+spokeName, nil, &v) == nil && v.Linked && v.Liveness == hub.Alive
	}, "the hub to see the spoke linked and alive")
}

// settled waits until everything is confirmed and ended on the hub's side.
func (t *trial) settled() error {
	var v hub.SpokeView
	err := t.await(func() bool {
		return t.do("GET", "/api/v1/connections/"+spokeName, nil, &v) == nil && v.Unconfirmed == 0
	}, "all messages of the hub to be confirmed")
	if err != nil {
		return fmt.Errorf("%w; %d are not", err, v.Unconfirmed)
	}
	return nil
}

// spawnAt gives the hub an order for a shell script.
func (t *trial) spawnAt(script string) (id string, err error) {
	var a hub.SpawnAnswer
	req := hub.SpawnRequest{ID: forge.NewID(), Spoke: spokeName, Spawn: commands.Spawn{Runtime: commands.RuntimeExec, Argv: []string{"sh", "-c", script}}}
	err = t.do("POST", "/api/v1/tasks", req.Revealed(), &a)
	return a.ID, err
}

// ends waits for the end of a task by the hub's word.
func (t *trial) ends(id string, want commands.State) (v hub.AgentView, err error) {
	err = t.await(func() bool { return t.do("GET", "/api/v1/tasks/"+id, nil, &v) == nil && v.State.Terminal() }, "the end of task %s at the hub", id)
	if err == nil && v.State != want {
		err = fmt.Errorf("expected %s; the hub says: %s, %s", want, v.State, v.Sentence())
	}
	return v, err
}

// runs has a script run by the hub, and compares its end and what it wrote.
func (t *trial) runs(script string, want commands.State, wrote string) error {
	id, err := t.spawnAt(script)
	if err != nil {
		return err
	}
	if _, err := t.ends(id, want); err != nil {
		return err
	}
	got := ""
	err = t.await(func() bool {
		got = ""
		err := t.mesh.Ctl.Follow(t.ctx, "/api/v1/tasks/"+id+"/logs", func(raw json.RawMessage) error {
			var p struct{ Data []byte }
			err := json.Unmarshal(raw, &p)
			got += string(p.Data)
			return err
		})
		return err == nil && got == wrote
	}, "the output %q at the hub", wrote)
	if err != nil {
		return fmt.Errorf("%w; it has %q", err, got)
	}
	return t.settled()
}

func (t *trial) hubKills() error {
	trace := t.trace()
	id, err := t.spawnAt("echo begun >> " + trace + "; sleep 60")
	if err != nil {
		return err
	}
	if err := t.appears(trace, "begun"); err != nil {
		return err
	}
	if err := t.do("POST", "/api/v1/tasks/"+id+"/kill", map[string]any{"reason": "the rule says so", "grace_ms": 0}, nil); err != nil {
		return err
	}
	if _, err := t.ends(id, commands.Cancelled); err != nil {
		return err
	}
	return t.settled()
}

// load gives orders that leave a trace, does something meanwhile, and fails unless each
// of them ran once and all of it is confirmed.
func (t *trial) load(orders int, meanwhile func(i int) error) error {
	traces, ids := make([]string, orders), make([]string, orders)
	var err error
	for i := range orders {
		traces[i] = t.trace()
		if ids[i], err = t.spawnAt("echo once >> " + traces[i]); err != nil {
			return err
		}
		if err := meanwhile(i); err != nil {
			return err
		}
	}
	for i, id := range ids {
		if _, err := t.ends(id, commands.Completed); err != nil {
			return err
		}
		if err := ran(traces[i], "once"); err != nil {
			return err
		}
	}
	return t.settled()
}

func (t *trial) hubCuts() error {
	return t.load(10, func(int) error {
		t.proxy.Cut()
		t.pause(100*time.Millisecond, func() bool { return false })
		t.proxy.Heal()
		t.pause(200*time.Millisecond, func() bool { return false })
		return nil
	})
}

func (t *trial) hubCrashes() error {
	err := t.load(6, func(i int) error {
		if i != 3 {
			return nil
		}
		t.mesh.Hub.Kill()
		return t.mesh.Hub.Start(t.ctx)
	})
	return errors.Join(err, t.linked())
}

func (t *trial) hubRotates() error {
	const why = "the rule says so"
	for _, change := range []struct {
		verb string
		body any
	}{{"rotate", api.KeyRotation{Reason: why}}, {"revoke", api.KeyRevocation{Key: "current", Reason: why}}} {
		if err := t.do("POST", "/api/v1/keys/"+change.verb, change.body, nil); err != nil {
			return err
		}
		if err := t.runs("echo changed", commands.Completed, "changed\n"); err != nil {
			return err
		}
	}
	return nil
}

// turn changes the state of the connection at the hub.
func (t *trial) turn(verb string) error {
	return t.do("POST", "/api/v1/connections/"+spokeName+"/"+verb, map[string]string{"reason": "the rule says so"}, nil)
}

func (t *trial) hubSuspends() error {
	if err := t.turn("suspend"); err != nil {
		return err
	}
	t.pause(time.Second, func() bool { return false })
	if err := errors.Join(t.turn("resume"), t.linked()); err != nil {
		return err
	}
	return t.runs("echo resumed", commands.Completed, "resumed\n")
}

// hubRestored puts the hub's database back to before an order that the spoke has run.
func (t *trial) hubRestored() error {
	pg, copied := filepath.Join(t.mesh.Hub.Dir, "pg"), filepath.Join(t.mesh.Dir, "pg-copy")
	if err := t.mesh.Hub.Stop(t.ctx); err != nil {
		return err
	}
	if out, err := exec.CommandContext(t.ctx, "cp", "-a", pg, copied).CombinedOutput(); err != nil {
		return fmt.Errorf("copying the hub's database: %w: %s", err, out)
	}
	if err := errors.Join(t.mesh.Hub.Start(t.ctx), t.linked()); err != nil {
		return err
	}
	trace := t.trace()
	lost, err := t.spawnAt("echo once >> " + trace)
	if err != nil {
		return err
	}
	if _, err := t.ends(lost, commands.Completed); err != nil {
		return err
	}
	if err := errors.Join(t.settled(), t.mesh.Hub.Stop(t.ctx), os.RemoveAll(pg), os.Rename(copied, pg), t.mesh.Hub.Start(t.ctx), t.linked()); err != nil {
		return err
	}
	if _, err := t.ends(lost, commands.Completed); err != nil {
		return fmt.Errorf("of the order that the restored hub had forgotten: %w", err)
	}
	if err := t.runs("echo after", commands.Completed, "after\n"); err != nil {
		return err
	}
	return ran(trace, "once")
}

func (t *trial) hubRevokes() error {
	if err := t.turn("revoke"); err != nil {
		return err
	}
	var v hub.SpokeView
	t.pause(3*time.Second, func() bool { return false })
	if err := t.do("GET", "/api/v1/connections/"+spokeName, nil, &v); err == nil && v.Linked {
		return errors.New("expected no link after the hub has revoked the connection; there is one")
	}
	return nil
}
