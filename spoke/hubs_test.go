package spoke_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
	"github.com/spawnmesh/spawnmesh/spoke"
	"github.com/spawnmesh/spawnmesh/store"
)

// second lets the spoke attic of m, which runs, join a second hub, and waits until
// that one sees it.
func second(t *testing.T, m *meshtest.Mesh) (other *meshtest.Mesh) {
	t.Helper()
	other = meshtest.Plan{Hub: "shop"}.Start(t)
	s := m.Spokes["attic"]
	_, err := s.JoinWith(t, other.Token(t, "attic", meshtest.NewProxy(t, other.Hub.Link)))
	require.NoError(t, err)
	other.AwaitLink(t, "attic")
	return other
}

func order(t *testing.T, m *meshtest.Mesh, key string, argv ...string) string {
	t.Helper()
	return m.Order(t, hub.SpawnRequest{Spoke: "attic", IdempotencyKey: key, Spawn: commands.Spawn{Runtime: commands.RuntimeExec, Argv: argv}})
}

func enough(t *testing.T, m *meshtest.Mesh, task string) {
	t.Helper()
	m.Hub.Do(t, "POST", "/api/v1/tasks/"+task+"/kill", map[string]any{"reason": "enough", "grace_ms": 0}, nil)
	require.Equal(t, commands.Cancelled, m.Wait(t, task).State)
}

// A running spoke takes up a second hub. What either hub orders, hears and loses is
// its own: the same idempotency key, a suspension, a grant, a revocation.
func TestASpokeServesTwoHubs(t *testing.T) {
	t.Parallel()
	one := meshtest.Start(t, "attic")
	s := one.Spokes["attic"]
	two := second(t, one)
	first, other := order(t, one, "nightly", "sleep", "600"), order(t, two, "nightly", "sleep", "601")
	require.NotEqual(t, first, other, "the same key at two hubs is two orders")
	one.Await(t, first, commands.Running)
	two.Await(t, other, commands.Running)
	beat := func(m *meshtest.Mesh) (tasks []string) {
		db := m.Hub.Open(t)
		defer db.Close()
		beats, err := db.Beats(t.Context())
		require.NoError(t, err)
		for _, b := range beats {
			for _, a := range b.Body.Agents {
				tasks = append(tasks, a.Task)
			}
		}
		return tasks
	}
	meshtest.Await(t, "heartbeats with agents", func() bool { return len(beat(one)) > 0 && len(beat(two)) > 0 })
	require.Equal(t, []string{first}, beat(one), "a hub hears of its own agents only")
	require.Equal(t, []string{other}, beat(two))

	turn := func(name, verb string) {
		s.Do(t, "POST", "/api/v1/connections/"+name+"/"+verb, map[string]string{"reason": "the test says so"}, nil)
	}
	turn("lab", "suspend")
	waits := one.Noop(t, "attic")
	require.Equal(t, commands.Completed, two.Wait(t, two.Noop(t, "attic")).State, "the other hub is served")
	turn("lab", "resume")
	require.Equal(t, commands.Completed, one.Wait(t, waits).State)

	var g store.GrantTerms
	s.Do(t, "PATCH", "/api/v1/connections/shop/grant", map[string]any{"runtimes": []string{"exec"}, "weight": 5}, &g)
	require.Equal(t, 5, g.Weight)
	require.Equal(t, store.FullGrant().Kinds, g.Kinds, "what was not named stays")
	refused := two.Wait(t, two.Noop(t, "attic"))
	require.Contains(t, string(refused.Refusal), commands.Grant)
	require.Equal(t, commands.Completed, one.Wait(t, one.Noop(t, "attic")).State)
	require.Error(t, s.Ask(t, "PATCH", "/api/v1/connections/shop/grant", map[string]any{"weight": 0}, nil))
	for _, no := range []string{"9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00"} {
		require.ErrorContains(t, s.Ask(t, "PATCH", "/api/v1/connections/shop/grant", map[string]any{"expires": no}, nil), "outside 1..9999")
	}
	var list control.Items[spoke.HubView]
	s.Do(t, "GET", "/api/v1/connections", nil, &list)
	views := list.Items
	require.Len(t, views, 2)
	require.Equal(t, []int{1, 5}, []int{views[0].Grant.Weight, views[1].Grant.Weight})
	require.Equal(t, []int{1, 1}, []int{views[0].Running, views[1].Running})

	turn("lab", "revoke")
	meshtest.Await(t, "the end of the first hub's agent", func() bool {
		return s.Count(t, `SELECT count(*) FROM tasks WHERE id = $1 AND state = 'cancelled'`, first) == 1
	})
	require.Equal(t, commands.Completed, two.Wait(t, order(t, two, "", "true")).State)
	require.Equal(t, commands.Running, two.Agent(t, other).State)
	enough(t, two, other)
	two.Check(t)
}

// What is queued for a hub that its host suspends, or whose grant has ended, is not
// started until that is over.
func TestQueuedTasksOfASuspendedHubWait(t *testing.T) {
	t.Parallel()
	m := meshtest.Plan{Slots: 1}.Start(t, "attic")
	two := second(t, m)
	s := m.Spokes["attic"]
	busy := sleeper(t, m)
	waits, other := m.Noop(t, "attic"), two.Noop(t, "attic")
	meshtest.Await(t, "the queue", func() bool { return s.Count(t, `SELECT count(*) FROM ready`) == 2 })
	s.Turn(t, "suspend")

	enough(t, m, busy)

	require.Equal(t, commands.Completed, two.Wait(t, other).State)
	require.Equal(t, commands.Completed, two.Wait(t, two.Noop(t, "attic")).State, "the slot is free")
	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM ready WHERE task = $1`, waits))
	past := time.Now().Add(-time.Hour)
	s.Do(t, "PATCH", "/api/v1/connections/lab/grant", map[string]any{"expires": past}, nil)
	s.Turn(t, "resume")
	require.Equal(t, commands.Completed, two.Wait(t, two.Noop(t, "attic")).State)
	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM ready WHERE task = $1`, waits))
	s.Do(t, "PATCH", "/api/v1/connections/lab/grant", map[string]any{"expires": time.Time{}}, nil)
	require.Equal(t, commands.Completed, m.Wait(t, waits).State)
}

// Who asks about one hub waits for no other.
func TestOneHubIsAskedAlone(t *testing.T) {
	t.Parallel()
	one := meshtest.Start(t, "attic")
	s := one.Spokes["attic"]
	second(t, one)
	one.AwaitLink(t, "attic")
	s.Proxy.Swallow(meshtest.ToHub, meshtest.ToSpoke)

	var shop spoke.HubView
	s.Do(t, "GET", "/api/v1/connections/shop", nil, &shop)
	require.Error(t, s.Ask(t, "GET", "/api/v1/connections/nobody", nil, nil))

	require.Len(t, shop.Queues, 2)
	require.NotContains(t, s.Log.String(), "asking what waits", "the first hub does not answer")
	s.Proxy.Heal()
}
