package spoke_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
)

// An agent has three directories of its own, and none of them is that of the control files.
func TestAnAgentHasDirectoriesOfItsOwn(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	task := m.Spawn(t, "attic", "sh", "-c", `pwd; echo "$HOME"; echo "$TMPDIR"; ls -A . "$HOME" "$TMPDIR" | grep -v : | grep .; ls ..`)

	require.Equal(t, commands.Completed, m.Wait(t, task).State)

	at := filepath.Join(m.Spokes["attic"].Dir, "agents", task, "1")
	want := []string{filepath.Join(at, "work"), filepath.Join(at, "home"), filepath.Join(at, "tmp"), "control", "door", "home", "tmp", "work"}
	require.Equal(t, want, strings.Fields(m.Stdout(t, task, true)))
}

// An old attempt whose agent has put something in the place of its control files cannot be
// removed. It is not passed over for that: doctor shows it.
func TestAnOldAttemptWithoutControlFilesIsShown(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	s := m.Spokes["attic"]
	task := m.Spawn(t, "attic", "sh", "-c", `mv ../control ../moved; ln -s control ../control`)
	m.Wait(t, task)
	at := filepath.Join(s.Dir, "agents", task, "1")
	requireShimGone(t, filepath.Join(at, "moved"))
	m.Stop(t, "attic")
	then := time.Now().AddDate(0, 0, -30)
	require.NoError(t, os.Chtimes(at, then, then))

	m.Start(t, "attic")

	meshtest.Await(t, "that it is shown", func() bool { return strings.Contains(s.Health(t, "old attempts").Problem, at) })
	// The end of the test takes every attempt over, and this one has to be whole for it.
	require.NoError(t, os.Remove(filepath.Join(at, "control")))
	require.NoError(t, os.Rename(filepath.Join(at, "moved"), filepath.Join(at, "control")))
}
