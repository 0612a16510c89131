package meshtest

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/instance"
)

// Agents do not move with a copy of their spoke's directory. Beside the original it does not
// start, so that they go on; in the place of the original it ends them, and says so.
func TestACopyInThePlaceOfItsOriginalEndsWhatRuns(t *testing.T) {
	t.Parallel()
	m := Plan{Lease: 2 * time.Minute}.Start(t, "attic")
	original, gate := m.Spokes["attic"], filepath.Join(t.TempDir(), "gate")
	id := m.Spawn(t, "attic", "sh", "-c", "until [ -e "+gate+" ]; do sleep 0.05; done")
	m.Await(t, id, commands.Running)
	m.Stop(t, "attic")
	dup := m.clone(t, "attic")
	require.NoError(t, os.WriteFile(filepath.Join(dup.Dir, "place"), []byte(original.Dir), 0o600))

	_, err := instance.Open(t.Context(), dup.options(), false)
	require.ErrorContains(t, err, dup.Dir+" is a copy of "+original.Dir)
	require.NoError(t, os.Rename(original.Dir, original.Dir+".moved"))
	t.Cleanup(func() { _ = os.Rename(original.Dir+".moved", original.Dir) })
	dup.start(t)

	v := m.Wait(t, id)
	require.Equal(t, commands.Failed, v.State)
	require.Equal(t, commands.ExecutorDied, v.Reason)
	require.Equal(t, 1, v.Attempt)
	require.NoError(t, os.WriteFile(gate, nil, 0o600))
	require.Contains(t, string(v.Result), `"reaped":[{`, "it was running until then")
}
