package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
)

// program is the binary under test, built once with crash points in it.
var program string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "spawnmesh-bin-")
	if err == nil {
		program = filepath.Join(dir, "spawnmesh")
		// Agents and a database server of other users must get at it.
		err = os.Chmod(dir, 0o755)
	}
	if err == nil {
		build := exec.Command("go", "build", "-tags", "crashpoints", "-o", program, ".")
		build.Stderr = os.Stderr
		err = build.Run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "building the program under test:", err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// startMesh runs a hub and one spoke, attic, as real processes with a private
// Postgres each, and ends them with the test.
func startMesh(t *testing.T, spokeArgs ...string) *mesh {
	t.Helper()
	m := startHub(t)
	require.NoError(t, m.addSpoke(t.Context(), "attic", policy.Presets["open"], append([]string{"--heartbeat", "1s"}, spokeArgs...)...))
	return m
}

// startHub runs a hub alone.
func startHub(t *testing.T, args ...string) *mesh {
	t.Helper()
	m, err := newMesh(t.Context(), program, "test", args...)
	t.Cleanup(func() {
		for _, n := range append([]*node{m.hub}, values(m.spokes)...) {
			if t.Failed() {
				t.Logf("%s said:\n%s", n.name, n.lastWords())
			}
		}
		if err := m.stop(context.Background()); err != nil {
			t.Errorf("stopping the mesh: %v", err)
		}
	})
	require.NoError(t, err)
	return m
}

func values(m map[string]*node) []*node {
	var list []*node
	for _, n := range m {
		list = append(list, n)
	}
	return list
}

// trace is a file to which agents themselves append when they start and end,
// outside of every database.
type trace struct{ path string }

func newTrace(t *testing.T) trace {
	t.Helper()
	path := filepath.Join(t.TempDir(), "trace")
	require.NoError(t, os.WriteFile(path, nil, 0o666))
	return trace{path}
}

// agent is a program that leaves a line when it starts and one when it ends.
func (tr trace) agent(id string, sleep string) []string {
	return []string{"sh", "-c", fmt.Sprintf("echo start %s >> %s; sleep %s; echo end %s >> %s", id, tr.path, sleep, id, tr.path)}
}

// counts says how often each agent started and ended.
func (tr trace) counts(t *testing.T) (starts, ends map[string]int) {
	t.Helper()
	raw, err := os.ReadFile(tr.path)
	require.NoError(t, err)
	starts, ends = map[string]int{}, map[string]int{}
	for line := range strings.Lines(string(raw)) {
		word, id, _ := strings.Cut(strings.TrimSpace(line), " ")
		if word == "start" {
			starts[id]++
		} else {
			ends[id]++
		}
	}
	return starts, ends
}

func newID() string { return uuid.Must(uuid.NewV7()).String() }

// order gives an order until it is taken: the id is the caller's, so that giving
// it again is the same order.
func (m *mesh) order(ctx context.Context, id string, argv []string) error {
	return poll(ctx, time.Minute, "ordering "+id, func() (bool, error) {
		req := hub.SpawnRequest{ID: id, Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeExec, Argv: argv}}
		err := m.ctl.Do(ctx, "POST", "/v1/agents", req, nil)
		switch commands.CodeOf(err) {
		case "":
			return true, nil
		case commands.Unreachable, commands.StoreDown, commands.Internal:
			return false, nil // the hub is down, or died over it
		}
		return false, err
	})
}

// ended waits for an agent's end.
func (m *mesh) ended(ctx context.Context, id string, limit time.Duration) (hub.AgentView, error) {
	var v hub.AgentView
	err := poll(ctx, limit, "waiting for the end of "+id, func() (bool, error) {
		err := m.ctl.Do(ctx, "GET", "/v1/agents/"+id, nil, &v)
		if c := commands.CodeOf(err); c == commands.Unreachable || c == commands.StoreDown || c == commands.Internal {
			return false, nil
		}
		return v.State.Terminal(), err
	})
	return v, err
}

// settled waits until both sides have confirmed everything to each other.
func (m *mesh) settled(ctx context.Context) error {
	return poll(ctx, 2*time.Minute, "waiting for confirmations", func() (bool, error) {
		var views []hub.SpokeView
		err := m.ctl.Do(ctx, "GET", "/v1/connections", nil, &views)
		return err == nil && views[0].Unconfirmed == 0, nil
	})
}
