package spoke_test

import (
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
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
)

// A spoke that was restored from a backup knows less of the output than its hub has, and the files of the agent are gone: its end is
// where the hub stands, as one that was cut. The log ends, and nobody waits for more.
func TestOutputEndsAfterARestore(t *testing.T) {
	t.Parallel()
	m := meshtest.Plan{Lease: 5 * time.Minute}.Start(t, "attic")
	s, dir := m.Spokes["attic"], t.TempDir()
	task := m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeExec,
		Argv: []string{"sh", "-c", `cd "$0"; echo $$ >pid; echo first; while [ ! -e more ]; do sleep 0.01; done; echo second; sleep 600`, dir}}})
	meshtest.Await(t, "that the spoke knows of the first line", func() bool {
		return s.Count(t, `SELECT count(*) FROM outputs WHERE task = $1 AND stdout = 6`, task) == 1
	})
	m.Stop(t, "attic")
	backup := s.Backup(t)
	m.Start(t, "attic")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "more"), nil, 0o600))
	meshtest.Await(t, "the second line", func() bool { return m.Stdout(t, task, false) == "first\nsecond\n" })
	m.Stop(t, "attic")
	shim := s.Count(t, `SELECT shim_pid FROM sessions WHERE task = $1`, task)
	raw, err := os.ReadFile(filepath.Join(dir, "pid"))
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	require.NoError(t, err)
	s.Restore(t, backup)
	require.NoError(t, syscall.Kill(shim, syscall.SIGKILL))
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	require.NoError(t, os.RemoveAll(filepath.Join(s.Dir, "agents")))

	m.Start(t, "attic")

	require.Equal(t, commands.ExecutorDied, m.Wait(t, task).Reason)
	lines := m.Logs(t, task, true)
	var text string
	for _, l := range lines {
		require.Nil(t, l.Missing)
		if l.Stream == "stdout" {
			text += string(l.Data)
		}
	}
	require.Contains(t, text, "first\nsecond\n")
	for _, o := range m.Agent(t, task).Output {
		require.NotNil(t, o.Ended, o.Stream)
		require.True(t, o.Ended.Cut, o.Stream)
	}
	meshtest.Await(t, "that nothing waits to be sent", func() bool { return s.Count(t, `SELECT count(*) FROM outputs`) == 0 })
}
