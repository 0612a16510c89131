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
