package spoke_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
)

// Whatever an agent puts in the place of the files of its attempt: a spoke that comes
// back takes over that agent and all others.
func TestASpokeComesBackToBrokenDirectories(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	s, end := m.Spokes["attic"], filepath.Join(t.TempDir(), "end")
	tasks := map[string]string{}
	for name, what := range map[string]string{
		"a pipe":              `rm ../control/policy; mkfifo ../control/policy`,
		"a file that is long": `truncate -s 64M ../control/policy`,
		"a directory":         `rm ../control/policy; mkdir ../control/policy`,
		"nothing changed":     `:`,
	} {
		tasks[name] = m.Spawn(t, "attic", "sh", "-c", what+`; echo >../control/broken; until [ -e "$0" ]; do sleep 0.1; done`, end)
	}
	for _, task := range tasks {
		m.Await(t, task, commands.Running)
		meshtest.Await(t, "what it does", func() bool {
			_, err := os.Stat(filepath.Join(s.Dir, "agents", task, "1", "control", "broken"))
			return err == nil
		})
	}
	m.Stop(t, "attic")

	m.Start(t, "attic")

	require.NoError(t, os.WriteFile(end, nil, 0o600))
	for name, task := range tasks {
		require.Equal(t, commands.Completed, m.Wait(t, task).State, name)
	}
	require.Contains(t, s.Log.String(), "policy is not a regular file")
	require.Contains(t, s.Log.String(), "policy has more than 64 bytes")
	m.Check(t)
}

// The attempt of an agent that has put something else in the place of its directory ends when its spoke comes back: no place for an agent is
// taken for good.
func TestASpokeComesBackToWhatIsNoDirectory(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	s, tasks := m.Spokes["attic"], map[string]string{}
	for name, what := range map[string]string{
		"a file":                      `cd ../..; mv 1 x; : >1`,
		"a link to nowhere":           `cd ../..; mv 1 x; ln -s /nowhere 1`,
		"a link to itself":            `cd ../..; mv 1 x; ln -s 1 1`,
		"a file in place of its task": `cd ../../..; mv "$SPAWNMESH_TASK" "x$SPAWNMESH_TASK"; : >"$SPAWNMESH_TASK"`,
	} {
		tasks[name] = m.Spawn(t, "attic", "sh", "-c", what+`; sleep 600`)
	}
	for name, task := range tasks {
		m.Await(t, task, commands.Running)
		meshtest.Await(t, "what it does: "+name, func() bool {
			info, err := os.Stat(filepath.Join(s.Dir, "agents", task, "1"))
			return err != nil || !info.IsDir()
		})
	}
	m.Stop(t, "attic")

	m.Start(t, "attic")

	for name, task := range tasks {
		v := m.Wait(t, task)
		require.Equal(t, []any{commands.Failed, commands.ExecutorDied}, []any{v.State, v.Reason}, "%s: %s", name, v.Sentence())
	}
	m.Check(t)
}
