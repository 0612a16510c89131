package hub_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
	"github.com/spawnmesh/spawnmesh/store"
)

// Whoever suspends and resumes, the other side shows it, and log and audit there have it
// once, with its reason; a suspended link says no more.
func TestASuspensionIsSeenOnTheOtherSide(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	attic := m.Spokes["attic"]
	const audited = `SELECT count(*) FROM audit WHERE action = 'peer.suspended' AND why = 'the test says so'`

	attic.Turn(t, "suspend")

	meshtest.Await(t, "the hub's view", func() bool { return m.View(t, "attic").Says.State == string(store.Suspended) })
	v := m.View(t, "attic")
	require.Equal(t, store.Active, v.State)
	require.True(t, v.Linked, "what runs may be reported")
	require.Equal(t, "the test says so", v.Says.Reason)
	meshtest.Await(t, "the hub's audit", func() bool { return m.Hub.Count(t, audited) == 1 })
	attic.Turn(t, "resume")
	meshtest.Await(t, "the end of it", func() bool { return m.Hub.Count(t, `SELECT count(*) FROM audit WHERE action = 'peer.active'`) == 1 })

	m.Turn(t, "attic", "suspend")

	meshtest.Await(t, "the spoke's audit", func() bool { return attic.Count(t, audited) == 1 })
	require.Equal(t, control.Check{Name: "link to lab", OK: true, Note: "suspended by lab: the test says so", Remote: true}, attic.Health(t, "link to lab"))
	meshtest.Await(t, "more dials", func() bool { return strings.Count(m.Hub.Log.String(), "authentication error") >= 5 })
	require.LessOrEqual(t, strings.Count(attic.Log.String(), "not linked to the hub"), 2, attic.Log.String())
	m.Turn(t, "attic", "resume")
	meshtest.Await(t, "the end of it", func() bool { return attic.Count(t, `SELECT count(*) FROM audit WHERE action = 'peer.active'`) == 1 })
	for side, log := range map[string]string{"the hub's": m.Hub.Log.String(), "the spoke's": attic.Log.String()} {
		for line, times := range map[string]int{"the peer has changed the connection on its side": 2, "msg=\"connection changed\"": 2} {
			require.Equal(t, times, strings.Count(log, line), side+": "+line+"\n"+log)
		}
	}
}

// A hub that ends a connection says so before it cuts the link: what ran for it
// ends, and what was ordered ends on the hub in the same transaction.
func TestARevocationIsTheLastWord(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	task := m.Spawn(t, "attic", "sleep", "600")
	m.Await(t, task, commands.Running)
	waiting := make(chan store.Mirror, 1)
	go func() { waiting <- m.Wait(t, task).Mirror }()

	m.Turn(t, "attic", "revoke")

	require.Equal(t, commands.LinkRevoked, (<-waiting).Reason, "who waits is told")
	s := m.Spokes["attic"]
	meshtest.Await(t, "the spoke's connection", func() bool {
		return s.Count(t, `SELECT count(*) FROM connections WHERE state = 'revoked' AND state_by = 'peer'`) == 1
	})
	meshtest.Await(t, "the end of the agent", func() bool { return s.Count(t, `SELECT count(*) FROM leases`) == 0 })
	err := m.Hub.Ask(t, "POST", "/api/v1/tasks", hub.SpawnRequest{Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeNoop}}.Revealed(), nil)
	require.Error(t, err, "nothing more is ordered there")
	delete(m.Spokes, "attic")
}

// A host that ends the connection is heard by its hub.
func TestAHostsRevocationReachesTheHub(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	task := m.Spawn(t, "attic", "sleep", "600")
	m.Await(t, task, commands.Running)

	m.Spokes["attic"].Turn(t, "revoke")

	meshtest.Await(t, "the hub's connection", func() bool { return m.View(t, m.Spokes["attic"].Conn).State == store.Revoked })
	require.Equal(t, commands.LinkRevoked, m.Wait(t, task).Reason)
	meshtest.Await(t, "the end of the agent", func() bool { return m.Spokes["attic"].Count(t, `SELECT count(*) FROM leases`) == 0 })
	delete(m.Spokes, "attic")
}

// What the hub has stored is told again with every heartbeat: a confirmation
// that was lost costs nothing.
func TestALostConfirmationIsRepeated(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	m.Wait(t, m.Noop(t, "attic"))
	s := m.Spokes["attic"]
	meshtest.Await(t, "the confirmation", func() bool { return s.Count(t, `SELECT count(*) FROM open_outbox`) == 0 })

	s.Exec(t, `UPDATE confirmed SET numbers = '{}'`)

	meshtest.Await(t, "another one", func() bool { return s.Count(t, `SELECT count(*) FROM open_outbox`) == 0 })
}

// A table that is locked makes a living spoke no dead one.
func TestHeartbeatsDoNotWaitForTheDatabase(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	tx, err := m.Spokes["attic"].SQL.Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) }) // or nothing could be closed
	_, err = tx.Exec(t.Context(), `LOCK TABLE ready, tasks, leases, sequences, outbox IN ACCESS EXCLUSIVE MODE`)
	require.NoError(t, err)
	locked := time.Now()

	meshtest.Await(t, "a heartbeat from behind the lock", func() bool {
		seen := m.View(t, "attic").LastSeen
		return seen != nil && seen.After(locked.Add(3*time.Second))
	})

	require.NoError(t, tx.Rollback(t.Context()))
	m.Wait(t, m.Noop(t, "attic"))
}

// A spoke that has not heard its hub for the length of its lease starts nothing
// new, until it hears it again.
func TestALeaseThatEnds(t *testing.T) {
	t.Parallel()
	for name, past := range map[string]string{
		"its hub was heard long ago": `UPDATE heartbeats SET at = clock_timestamp() - interval '25 hours'`,
		"its hub was never heard":    `WITH none AS (DELETE FROM heartbeats) UPDATE connections SET created_at = clock_timestamp() - interval '25 hours'`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			leaseEnds(t, past)
		})
	}
}

func leaseEnds(t *testing.T, past string) {
	m := meshtest.Start(t, "attic")
	s := m.Spokes["attic"]
	meshtest.Await(t, "a stored heartbeat", func() bool { return s.Count(t, `SELECT count(*) FROM heartbeats`) == 1 })
	m.Stop(t, "hub")
	m.Stop(t, "attic")
	s.Exec(t, past)
	state := func() (list string) {
		for id, state := range s.Pairs(t, `SELECT id::text, state || ' by ' || state_by FROM connections`) {
			require.Equal(t, s.Conn, id)
			list = state
		}
		return list
	}

	m.Start(t, "attic")

	meshtest.Await(t, "the end of the lease", func() bool { return state() == "suspended by lease" })
	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM audit WHERE action = 'connection.suspended' AND actor = 'lease'`))
	m.Start(t, "hub")
	meshtest.Await(t, "a new lease", func() bool { return state() == "active by lease" })
	m.Wait(t, m.Noop(t, "attic"))
}
