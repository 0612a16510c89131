package spoke_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
)

// An agent that keeps its start from being told, and its end from being proven, is not run again beside what may be left of it.
func TestAStartThatCannotBeProvenIsNotRepeated(t *testing.T) {
	t.Parallel()
	runs := filepath.Join(t.TempDir(), "runs")
	m := meshtest.Start(t, "attic")
	const orders = 12 // of some of them the shim is faster
	var ids []string

	for range orders {
		ids = append(ids, m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeExec,
			Argv: []string{"/bin/sh", "-c", `kill -STOP $PPID; echo ran >>"$0"; d=$(readlink /proc/$PPID/cwd); rm -rf "$d"; kill -KILL $PPID`, runs}}}))
	}

	for _, id := range ids {
		v := m.Wait(t, id)
		require.Equal(t, []any{commands.Failed, commands.ExecutorDied, 1}, []any{v.State, v.Reason, v.Attempt}, "%s", v.Sentence())
	}
	said, err := os.ReadFile(runs)
	require.NoError(t, err)
	require.Equal(t, orders, strings.Count(string(said), "ran\n"))
}
