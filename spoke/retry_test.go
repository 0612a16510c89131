package spoke_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
)

// A retry is an order of its own. What has ended stays as it is.
func TestARetryIsANewOrder(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	old := m.Order(t, hub.SpawnRequest{Spoke: "attic", Labels: commands.Labels{"app": "web"}, Spawn: commands.Spawn{Runtime: commands.RuntimeExec, Title: "build", Priority: 3, Argv: []string{"sh", "-c", "exit 3"}}})
	was := m.Wait(t, old)
	var got, again hub.SpawnAnswer

	m.Hub.Do(t, "POST", "/api/v1/tasks/"+old+"/retry", nil, &got)
	m.Hub.Do(t, "POST", "/api/v1/tasks/"+old+"/retry", nil, &again)

	require.NotEqual(t, old, got.ID)
	require.Equal(t, got.ID, again.ID)
	require.True(t, again.Existing)
	v := m.Wait(t, got.ID)
	require.Equal(t, []any{commands.Failed, "build", 3, commands.Labels{"app": "web"}, old}, []any{v.State, v.Title, v.Priority, v.Labels, v.RetryOf})
	now := m.Agent(t, old)
	require.Equal(t, got.ID, now.RetriedAs)
	now.RetriedAs = ""
	require.Equal(t, was, now, "the old one is as it was")
	require.Equal(t, 1, m.Spokes["attic"].Count(t, `SELECT count(*) FROM task_bodies WHERE task = $1 AND spec->>'retry_of' = $2`, got.ID, old))
	m.Check(t)
}

func TestWhatIsNotRetried(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	open := m.Spawn(t, "attic", "sleep", "60")
	well := m.Spawn(t, "attic", "true")
	m.Wait(t, well)
	secret := m.Order(t, hub.SpawnRequest{Spoke: "attic", Values: commands.Values{commands.NewSecret("v")},
		Spawn: commands.Spawn{Runtime: commands.RuntimeExec, Argv: []string{"false"}, Env: []commands.EnvVar{{Name: "A"}}}})
	m.Wait(t, secret)
	last := m.Spawn(t, "attic", "false")
	for range 10 {
		m.Wait(t, last)
		var got hub.SpawnAnswer
		m.Hub.Do(t, "POST", "/api/v1/tasks/"+last+"/retry", nil, &got)
		last = got.ID
	}
	m.Wait(t, last)

	for task, why := range map[string]string{open: "is not retried: it is", well: "it has completed", secret: "this hub does not keep them", last: "which is the limit"} {
		err := m.Hub.Ask(t, "POST", "/api/v1/tasks/"+task+"/retry", nil, nil)
		require.Equal(t, commands.Conflict, commands.CodeOf(err))
		require.ErrorContains(t, err, why)
		if task == secret || task == last {
			offersNone(t, m, task, why)
		}
	}
	cancel(t, m.Hub.Instance, open, map[string]any{"wait_ms": 0})
	m.Wait(t, open)
	m.Check(t)
}

// A hub that was restored from a backup has taken its orders over from its spokes, and knows no request of before.
func TestARetryIsFoundByWhatItRepeats(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	old := m.Spawn(t, "attic", "false")
	m.Wait(t, old)
	var got, again hub.SpawnAnswer
	m.Hub.Do(t, "POST", "/api/v1/tasks/"+old+"/retry", nil, &got)
	m.Hub.Exec(t, `UPDATE mirrors SET idempotency_key = NULL`)

	m.Hub.Do(t, "POST", "/api/v1/tasks/"+old+"/retry", nil, &again)

	require.Equal(t, got.ID, again.ID)
	require.True(t, again.Existing)
	require.Equal(t, 2, m.Hub.Count(t, `SELECT count(*) FROM mirrors`))
}

// What a hub has ended by itself may run, also where its spoke has told how an attempt ended. A spoke whose connection has ended
// is not named as one to order from.
func TestWhatMayRunIsNotRetried(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	runs := m.Order(t, hub.SpawnRequest{Any: true, Spawn: commands.Spawn{Runtime: commands.RuntimeExec, Argv: []string{"sleep", "600"}}})
	failed := m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeExec, Argv: []string{"false"}}})
	m.Await(t, runs, commands.Running)
	m.Wait(t, failed)
	again := m.Order(t, hub.SpawnRequest{Any: true, Spawn: commands.Spawn{Runtime: commands.RuntimeExec, Argv: []string{"sh", "-c", "exit 75"}}}) // goes on after minutes
	meshtest.Await(t, "the end of its first attempt", func() bool { return len(m.Agent(t, again).Attempts) == 1 })
	m.Turn(t, "attic", "revoke")

	for task, why := range map[string]string{
		runs:   "this hub has ended it (link_revoked) without a word of attic, where it may have run or run still",
		again:  "this hub has ended it (link_revoked) after attempt 1, whose end attic has told; it may have run once more there",
		failed: "the connection with attic that it ran over is revoked",
	} {
		require.True(t, m.Wait(t, task).State.Terminal())
		err := m.Hub.Ask(t, "POST", "/api/v1/tasks/"+task+"/retry", nil, nil)
		require.Equal(t, commands.Conflict, commands.CodeOf(err))
		require.ErrorContains(t, err, why)
		require.Contains(t, offersNone(t, m, task, why), ": spawnmesh spawn --spoke SPOKE -- COMMAND")
	}
	require.Equal(t, 3, m.Hub.Count(t, `SELECT count(*) FROM mirrors`))
}

// offersNone requires that why offers no retry of an agent, and says why there is none. It returns what helps.
func offersNone(t *testing.T, m *meshtest.Mesh, task, why string) (fix string) {
	t.Helper()
	var w struct{ Reasons []struct{ Text, Fix string } }
	m.Hub.Do(t, "GET", "/api/v1/tasks/"+task+"/why", nil, &w)
	require.Empty(t, w.Reasons[0].Fix)
	require.Contains(t, w.Reasons[1].Text, why)
	require.Contains(t, w.Reasons[1].Fix, ": spawnmesh spawn")
	return w.Reasons[1].Fix
}
