package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/internal/acptest"
	"github.com/spawnmesh/spawnmesh/internal/fleet"
	"github.com/spawnmesh/spawnmesh/internal/pgtest"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/postgres"
)

// program is the binary under test, built once with crash points in it.
var program string

func TestMain(m *testing.M) {
	acptest.Main()
	dir, err := os.MkdirTemp("", "spawnmesh-bin-")
	if err == nil {
		program = filepath.Join(dir, "spawnmesh")
		// Agents and a database server of other users must get at it.
		err = os.Chmod(dir, 0o755)
	}
	if err == nil {
		build := exec.Command("make", "-s", "-C", "../..", "build", "BIN="+program, "TAGS=crashpoints")
		build.Stderr = os.Stderr
		err = build.Run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "building the program under test:", err)
		os.RemoveAll(dir)
		os.Exit(1)
	}
	if err := pgtest.InMemory(); err != nil {
		fmt.Fprintln(os.Stderr, "keeping temporary files in memory:", err)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// startMesh runs a hub and one spoke, attic, as real processes with a private
// Postgres each, and ends them with the test.
func startMesh(t *testing.T, spokeArgs ...string) *fleet.Mesh {
	t.Helper()
	m := startHub(t)
	withCluster(t, filepath.Join(m.Dir, "attic"))
	require.NoError(t, m.AddSpoke(t.Context(), "attic", loose, append([]string{"--heartbeat", "1s"}, spokeArgs...)...))
	return m
}

// hasSaid waits until an instance has said what fits, and returns its parts: nobody waits for who reads its words.
func hasSaid(t *testing.T, n *fleet.Process, what *regexp.Regexp) (parts []string) {
	t.Helper()
	require.NoError(t, fleet.Poll(t.Context(), time.Minute, "waiting until "+n.Name+" says "+what.String(), func() (bool, error) {
		parts = what.FindStringSubmatch(n.LastWords())
		return parts != nil, nil
	}))
	return parts
}

// startHub runs a hub alone.
func startHub(t *testing.T, args ...string) *fleet.Mesh {
	t.Helper()
	m, err := fleet.Make(program, "test", args...)
	require.NoError(t, err)
	t.Cleanup(func() {
		for _, n := range append([]*fleet.Process{m.Hub}, values(m.Spokes)...) {
			if t.Failed() {
				t.Logf("%s said:\n%s", n.Name, n.LastWords())
			}
		}
		if err := m.Stop(context.Background()); err != nil {
			t.Errorf("stopping the mesh: %v", err)
		}
	})
	withCluster(t, m.Hub.Dir)
	require.NoError(t, m.StartHub(t.Context()))
	return m
}

// withCluster makes the data directory of an instance with its keys and a database
// cluster in it, as its first start would: that takes a second, a copy takes none.
// Tests of single commands let the program make them.
func withCluster(t *testing.T, dir string) {
	t.Helper()
	from, err := cluster()
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(dir, 0o711))
	_, err = signing.CreateKeys(filepath.Join(dir, "keys"))
	require.NoError(t, err)
	out, err := exec.CommandContext(t.Context(), "cp", "-a", from, filepath.Join(dir, "pg")).CombinedOutput()
	require.NoError(t, err, "%s", out)
	passwords, err := os.ReadFile(filepath.Join(filepath.Dir(from), "keys", "pgpass"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "keys", "pgpass"), passwords, 0o600))
}

// cluster makes the one that others are copies of.
var cluster = sync.OnceValues(func() (string, error) {
	ctx, dir := context.Background(), filepath.Join(filepath.Dir(program), "first")
	lock, err := postgres.Lock(dir)
	if err != nil {
		return "", err
	}
	c, err := postgres.Start(ctx, postgres.Config{Dir: dir})
	if err == nil {
		err = errors.Join(store.Prepare(ctx, c.URL()), c.Close(ctx))
	}
	return filepath.Join(dir, "pg"), errors.Join(err, lock.Close())
})

func values(m map[string]*fleet.Process) []*fleet.Process {
	var list []*fleet.Process
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

// loose is a policy whose agents have the user of their spoke: they use what a test has made for
// them, wherever it is.
var loose = policy.Presets["open"] + "isolation: none\nallow_root_agents: true\n"
