package main

import (
	"cmp"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/internal/fleet"
	"github.com/spawnmesh/spawnmesh/internal/scale"
)

// Twenty agents go on over twenty deaths of their spoke: each is the same process
// all the while, in its first attempt, and ends as it would have without them.
func TestTwentyAgentsOverTwentyRestarts(t *testing.T) {
	t.Parallel()
	const agents = 20
	restarts := scale.Larger(t, "SPAWNMESH_RESTARTS", 3, 20)
	m := startMesh(t, "--slots", strconv.Itoa(agents))
	tr, end := newTrace(t), newGate(t)
	ids := make([]string, agents)
	for i := range ids {
		ids[i] = newID()
		require.NoError(t, m.Order(t.Context(), ids[i], []string{"sh", "-c", "echo start $0 >>$1; " + end.wait() + "; echo end $0 >>$1", ids[i], tr.path}))
	}
	h := hand{t: t, dir: m.Hub.Dir}
	for _, id := range ids {
		h.runs(id) // one that is killed before its start is proven has a second attempt
	}

	for range restarts {
		m.Spokes["attic"].Kill()
		require.NoError(t, m.Spokes["attic"].Start(t.Context()))
		awaitRunning(t, m.Spokes["attic"], agents)
	}

	end.open(t)
	for _, id := range ids {
		v, err := m.Ended(t.Context(), id, time.Minute)
		require.NoError(t, err)
		require.Equal(t, commands.Completed, v.State, "%s", v.Sentence())
		require.Equal(t, 1, v.Attempt)
	}
	starts, ends := tr.counts(t)
	for _, id := range ids {
		require.Equal(t, 1, starts[id], "starts of %s", id)
		require.Equal(t, 1, ends[id], "ends of %s", id)
	}
}

// awaitRunning waits until a spoke watches n agents, and nobody else.
func awaitRunning(t *testing.T, spoke *fleet.Process, n int) {
	t.Helper()
	require.NoError(t, fleet.Poll(t.Context(), time.Minute, "waiting for the agents of "+spoke.Name, func() (bool, error) {
		var now api.Instance
		err := control.NewClient(spoke.Dir).Do(t.Context(), "GET", "/api/v1/instance", nil, &now)
		return err == nil && now.Running == n, nil // it may not serve yet
	}))
}

func ignoreAbsent(err error) error {
	if os.IsNotExist(err) {
		return nil
	}
	return err
}

// A spoke that is stopped for longer than its lease has lost its agent: the agent's
// own shim ends all of it. Resumed, the spoke runs the next attempt, and nothing of
// the one before is written or left. SPAWNMESH_STOPPED is how long it stays stopped beyond that.
func TestASpokeThatIsStoppedBeyondItsLease(t *testing.T) {
	t.Parallel()
	stopped, err := time.ParseDuration(cmp.Or(os.Getenv("SPAWNMESH_STOPPED"), "0s"))
	require.NoError(t, err)
	m := startMesh(t, "--lease", "2s")
	h := hand{t: t, dir: m.Hub.Dir}
	out := filepath.Join(t.TempDir(), "out")
	stray := []string{"sleep", "599.7" + strconv.Itoa(os.Getpid())}
	// Each attempt leaves its number each 50 ms, and a process in a session of its own.
	id := h.spawn("--spoke", "attic", "--on-loss", "rerun", "--", "sh", "-c",
		"echo start >>$0; n=$(grep -c start $0); setsid "+strings.Join(stray, " ")+" & while :; do echo $n >>$0; sleep 0.05; done", out)
	wrote := func(line string) func() (bool, error) {
		return func() (bool, error) {
			raw, err := os.ReadFile(out)
			return strings.Contains(string(raw), "\n"+line+"\n"), ignoreAbsent(err)
		}
	}
	require.NoError(t, fleet.Poll(t.Context(), time.Minute, "waiting for the first attempt", wrote("1")))
	strays := func(n int) func() (bool, error) {
		return func() (bool, error) { return processes(t, stray...) == n, nil }
	}
	require.NoError(t, fleet.Poll(t.Context(), time.Minute, "waiting for its process in a session of its own", strays(1)))
	attic := m.Spokes["attic"].Cmd.Process

	require.NoError(t, attic.Signal(syscall.SIGSTOP))
	t.Cleanup(func() { _ = attic.Signal(syscall.SIGCONT) }) // it has ended where the test has
	require.NoError(t, fleet.Poll(t.Context(), time.Minute, "waiting for the end of the tree", strays(0)))
	time.Sleep(stopped)
	require.NoError(t, attic.Signal(syscall.SIGCONT))

	require.NoError(t, fleet.Poll(t.Context(), time.Minute, "waiting for the second attempt", wrote("2")))
	require.NoError(t, fleet.Poll(t.Context(), time.Minute, "waiting for the second attempt's process, and no other one", strays(1)))
	v := h.until(id, func(v hub.AgentView) bool { return v.State == commands.Running && v.Attempt == 2 })
	require.Equal(t, 2, v.Attempt)
	h.do("kill", id, "--grace", "0s", "--reason", "enough")
	ended := h.ends(id)
	require.Equal(t, commands.Cancelled, ended.State)
	require.Zero(t, processes(t, stray...))
	require.Len(t, ended.Attempts, 1, "the first attempt is told once, and the second ends with the agent")
	first := ended.Attempts[0]
	require.Equal(t, []any{1, commands.Interrupted, "the lease was not renewed"}, []any{first.Attempt, first.Outcome, first.Exit.Error})
	did := hand{t: t, dir: m.Spokes["attic"].Dir}.do("audit", "list", "--object", id)
	require.Regexp(t, `task\.claimed[^\n]+attempt 1 *\n[^\n]+task\.running[^\n]*\n[^\n]+task\.queued[^\n]+executor_died +attempt 1 interrupted *\n[^\n]+task\.claimed[^\n]+attempt 2 *\n`, did)
	require.Equal(t, 2, strings.Count(did, "attempt 1"), "its claim and its end are all that its spoke has recorded of it:\n%s", did)
	told := h.do("status", id)
	for what, n := range map[string]int{"attic started it, attempt 1": 1, "attic started it, attempt 2": 1, "attic says that attempt": 1, "attic says how it ended": 1} {
		require.Equal(t, n, strings.Count(told, what), "%s:\n%s", what, told)
	}
	raw, err := os.ReadFile(out)
	require.NoError(t, err)
	_, after, _ := strings.Cut(string(raw), "\n2\n")
	require.NotContains(t, after, "1\n", "the first attempt writes nothing beside the second")
}
