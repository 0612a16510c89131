package spoke_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
)

// stubborn spawns an agent that ignores TERM, and kills it with a grace that no
// test outlasts.
func stubborn(t *testing.T, m *meshtest.Mesh) (task string) {
	t.Helper()
	up := filepath.Join(t.TempDir(), "up")
	task = m.Spawn(t, "attic", "sh", "-c", `trap "" TERM; touch "$0"; while :; do sleep 600; done`, up)
	meshtest.Await(t, "the agent", func() bool { _, err := os.Stat(up); return err == nil })
	m.Await(t, task, commands.Running)
	kill(t, m, task, commands.MaxGrace.Milliseconds())
	meshtest.Await(t, "the first kill", func() bool {
		return m.Spokes["attic"].Count(t, `SELECT count(*) FROM kills WHERE task = $1`, task) == 1
	})
	return task
}

func kill(t *testing.T, m *meshtest.Mesh, task string, graceMS int64) {
	t.Helper()
	m.Hub.Do(t, "POST", "/v1/agents/"+task+"/kill", map[string]any{"reason": "enough", "grace_ms": graceMS}, nil)
}

func TestASecondKillHastensTheFirst(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	task := stubborn(t, m)

	kill(t, m, task, 0)

	v := m.Wait(t, task)
	require.Equal(t, commands.Cancelled, v.State)
	require.Equal(t, commands.KillRequested, v.Reason)
	m.Check(t)
}

// The shim goes on with a kill whose spoke stops, and hears the next one
// through the next spoke.
func TestAStopIsHeardDuringAKill(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	task := stubborn(t, m)

	m.Stop(t, "attic")

	m.Start(t, "attic")
	m.AwaitLink(t, "attic")
	kill(t, m, task, 0)
	v := m.Wait(t, task)
	require.Equal(t, commands.Cancelled, v.State)
	m.Check(t)
}
