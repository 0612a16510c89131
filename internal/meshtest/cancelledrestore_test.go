package meshtest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
)

// A hub that is restored to before it let an agent finish learns from its spoke that it has.
func TestAHubThatIsRestoredKnowsWhatItHasCancelled(t *testing.T) {
	t.Parallel()
	m, r := Start(t, "attic"), newTraced(t)
	sides := disaster{sides: []string{"hub"}}
	task := r.order(t, m, r.gate)
	m.Await(t, task, commands.Running)
	before := sides.backUp(t, m)
	m.AwaitLink(t, "attic")
	m.Hub.Do(t, "POST", "/api/v1/tasks/"+task+"/cancel", map[string]any{"reason": "not needed", "graceful": true}, nil)
	Await(t, "the cancel", func() bool { return m.Agent(t, task).ProtocolCancel == "sent" })

	sides.restore(t, m, before)
	agreeAgain(t, m, "attic")

	Await(t, "that the hub knows it", func() bool { return m.Agent(t, task).Reason == commands.CancelRequested })
	v := m.Agent(t, task)
	require.Nil(t, v.Kill)
	require.Contains(t, hub.Why(v, m.View(t, "attic"))[1].Text, "it was cancelled and may finish")
	require.ErrorContains(t, m.Hub.Ask(t, "POST", "/api/v1/tasks/"+task+"/retry", nil, nil), "it was cancelled and may finish")
	r.open(t)
	v = m.Wait(t, task)
	require.Equal(t, []any{commands.Completed, commands.CancelRequested}, []any{v.State, v.Reason})
}

// A spoke that is restored to before an order came lets its agent finish as its host has ordered since, and runs no attempt after it: its
// hub recalls that.
func TestASpokeThatIsRestoredKnowsWhatItsHostHasCancelled(t *testing.T) {
	t.Parallel()
	m, dir := Start(t, "attic"), t.TempDir()
	s, sides := m.Spokes["attic"], disaster{sides: []string{"attic"}}
	before := sides.backUp(t, m)
	m.AwaitLink(t, "attic")
	task := m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeExec, MaxRetries: 3, BackoffMS: 1,
		Argv: []string{"sh", "-c", `cd "$0"; echo ran >>ran; until [ -e gate ]; do sleep 0.02; done; exit 3`, dir}}})
	m.Await(t, task, commands.Running)
	s.Do(t, "POST", "/api/v1/tasks/"+task+"/cancel", map[string]any{"reason": "not needed", "graceful": true}, nil)
	Await(t, "that the hub knows it", func() bool { return m.Agent(t, task).Reason == commands.CancelRequested })

	sides.restore(t, m, before)
	agreeAgain(t, m, "attic")

	Await(t, "that it is taken over", func() bool {
		return s.Count(t, `SELECT count(*) FROM leases WHERE task = $1 AND attempt = 1 AND started_at IS NOT NULL`, task) == 1
	})
	require.NoError(t, os.WriteFile(filepath.Join(dir, "gate"), nil, 0o600))
	v := m.Wait(t, task)
	require.Equal(t, []any{commands.Failed, commands.CancelRequested, 1}, []any{v.State, v.Reason, v.Attempt})
	raw, err := os.ReadFile(filepath.Join(dir, "ran"))
	require.NoError(t, err)
	require.Equal(t, "ran\n", string(raw))
	m.Check(t)
}
