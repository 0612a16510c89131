package meshtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
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
	original, note := m.Spokes["attic"], filepath.Join(t.TempDir(), "pid")
	id := m.Spawn(t, "attic", "sh", "-c", `echo $$ >"$0"; exec sleep 600`, note)
	m.Await(t, id, commands.Running)
	var pid int
	Await(t, "its word", func() bool {
		raw, err := os.ReadFile(note)
		if err == nil {
			pid, err = strconv.Atoi(strings.TrimSpace(string(raw)))
		}
		return err == nil
	})
	m.Stop(t, "attic")
	dup := m.clone(t, "attic")
	require.NoError(t, os.WriteFile(filepath.Join(dup.Dir, "place"), []byte(original.Dir), 0o600))

	_, err := instance.Open(t.Context(), dup.options(), false)
	require.ErrorContains(t, err, dup.Dir+" is a copy of "+original.Dir)
	require.NoError(t, os.Rename(original.Dir, original.Dir+".moved"))
	t.Cleanup(func() { _ = os.Rename(original.Dir+".moved", original.Dir) })
	require.NoError(t, syscall.Kill(pid, 0), "it runs until then")
	dup.start(t)

	v := m.Wait(t, id)
	require.Equal(t, commands.Failed, v.State)
	require.Equal(t, commands.ExecutorDied, v.Reason)
	require.Equal(t, 1, v.Attempt)
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	require.True(t, err != nil || strings.Contains(string(stat), ") Z "), "it is ended, or a zombie that nobody has waited for: %s", stat)
}
