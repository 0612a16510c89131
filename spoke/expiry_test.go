package spoke_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
	"github.com/spawnmesh/spawnmesh/signing"
)

// requireNeverStarted checks that a spoke has not so much as claimed a task.
func requireNeverStarted(t *testing.T, s *meshtest.Spoke, task string) {
	t.Helper()
	require.Zero(t, s.Count(t, `SELECT count(*) FROM attempts WHERE task = $1`, task))
}

// An order that arrives after its time, but within what clocks may differ, is
// accepted and expires in the backlog.
func TestAnOrderThatArrivesLateIsNotStarted(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	m.Spokes["attic"].Proxy.Cut()
	id := m.Order(t, hub.SpawnRequest{Spoke: "attic", ExpiresInMS: 1000, Spawn: commands.Spawn{Runtime: commands.RuntimeNoop}})
	meshtest.Await(t, "its expiry", func() bool {
		return m.Hub.Count(t, `SELECT count(*) FROM mirrors WHERE expires_at < clock_timestamp()`) == 1
	})

	m.Spokes["attic"].Proxy.Heal()

	v := m.Wait(t, id)
	require.Equal(t, commands.Expired, v.State)
	require.Equal(t, commands.CommandExpired, v.Reason)
	require.NotEmpty(t, v.Result, "the spoke said so, signed")
	requireNeverStarted(t, m.Spokes["attic"], id)
	m.Check(t)
}

// An order that waits behind others until its time has passed is not started
// when its turn comes.
func TestAnOrderThatWaitsTooLongIsNotStarted(t *testing.T) {
	t.Parallel()
	m := meshtest.Plan{Slots: 1}.Start(t, "attic")
	first := sleeper(t, m)
	id := m.Order(t, hub.SpawnRequest{Spoke: "attic", ExpiresInMS: 1500, Spawn: commands.Spawn{Runtime: commands.RuntimeNoop}})

	v := m.Wait(t, id)

	require.Equal(t, commands.Expired, v.State)
	require.Equal(t, commands.Running, m.Agent(t, first).State)
	m.Hub.Do(t, "POST", "/api/v1/tasks/"+first+"/kill", map[string]any{"reason": "enough", "grace_ms": 0}, nil)
	m.Wait(t, first)
	requireNeverStarted(t, m.Spokes["attic"], id)
	m.Check(t)
}

// Pruning may take long, or wait for somebody.
func TestWhatIsDueDoesNotWaitForPruning(t *testing.T) {
	t.Parallel()
	m := meshtest.Plan{Slots: 1}.Start(t, "attic")
	s, first := m.Spokes["attic"], sleeper(t, m)
	m.Stop(t, "attic")
	s.Exec(t, `UPDATE retention SET pruned_at = 'epoch'`)
	tx, err := s.SQL.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `LOCK TABLE invites IN ACCESS EXCLUSIVE MODE`)
	require.NoError(t, err)
	m.Start(t, "attic")
	meshtest.Await(t, "pruning to wait", func() bool {
		return s.Count(t, `SELECT count(*) FROM pg_locks WHERE relation = 'invites'::regclass AND NOT granted`) == 1
	})

	v := m.Wait(t, m.Order(t, hub.SpawnRequest{Spoke: "attic", ExpiresInMS: 1500, Spawn: commands.Spawn{Runtime: commands.RuntimeNoop}}))

	require.Equal(t, commands.Expired, v.State)
	require.NoError(t, tx.Rollback(t.Context()))
	m.Hub.Do(t, "POST", "/api/v1/tasks/"+first+"/kill", map[string]any{"reason": "enough", "grace_ms": 0}, nil)
	m.Wait(t, first)
	m.Check(t)
}

// An order that is older than clocks may differ is refused at once, in words
// that are signed and say by how much.
func TestAnOrderOfLongAgoIsRefused(t *testing.T) {
	t.Parallel()
	r := meshtest.Plan{}.Rogue(t)
	order, task := r.Noop(t, func(h *signing.Header) {
		h.Iat, h.Exp = time.Now().Add(-200*time.Second).UnixMilli(), time.Now().Add(-150*time.Second).UnixMilli()
	})

	r.Send(t, commands.QueueRun, order.Envelope)

	refusal := r.Answer(t, order.ID, commands.RefusedKind).(*commands.RefusedBody)
	require.Equal(t, signing.TimeExpired, refusal.Code)
	require.Contains(t, refusal.Why, "expired 2m3")
	require.Zero(t, r.Spoke.Count(t, `SELECT count(*) FROM tasks WHERE id = $1`, task))
	requireNeverStarted(t, r.Spoke, task)
}

// A hub turns such a refusal into the end of its mirror.
func TestARefusedOrderEndsAtTheHub(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t)
	a := m.Attack(t, "attic")
	asked := a.Order(t, m)

	a.Send(t, commands.QueueEvents, a.Seal(t, &commands.RefusedBody{Code: signing.TimeExpired, Why: "expired 2m30s ago"}, asked.Re, nil).Envelope)

	v := m.Wait(t, asked.Task)
	require.Equal(t, commands.Expired, v.State)
	require.Equal(t, commands.CommandExpired, v.Reason)
}
