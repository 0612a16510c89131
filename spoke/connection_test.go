package spoke_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/spoke"
	"github.com/spawnmesh/spawnmesh/store"
)

// What a hub may ask depends on the state that the transaction of its effect
// finds, even where the link is still there.
func TestStatesOfAConnection(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		state       store.ConnState
		spawn, kill signing.Code
	}{
		"a pending hub is not obeyed":             {store.Pending, signing.ConnState, signing.ConnState},
		"a suspended hub may end what it started": {store.Suspended, signing.ConnState, ""},
		"a disconnected hub is not obeyed":        {store.Disconnected, signing.ConnState, signing.ConnState},
		"a revoked hub is not heard at all":       {store.Revoked, signing.ConnState, signing.ConnState},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := meshtest.Plan{}.Rogue(t)
			known := done(t, r)
			spawn, _ := r.Noop(t, nil)
			kill := r.Seal(t, &commands.Kill{Task: known, Reason: "x"}, nil, nil)
			r.Spoke.Exec(t, `UPDATE connections SET state = $1`, tt.state)

			for envelope, code := range map[string]signing.Code{string(spawn.Envelope): tt.spawn, string(kill.Envelope): tt.kill} {
				before, end := r.Spoke.Sums(t), r.Spoke.AuditEnd(t)
				r.Send(t, commands.QueueControl, []byte(envelope))
				if code == "" {
					r.Answer(t, kill.ID, commands.KilledKind)
					continue
				}
				meshtest.Await(t, "a line in the audit, or the end of the exchange", func() bool {
					return len(r.Spoke.Audit(t, end)) > 0 || strings.Contains(r.Spoke.Log.String(), `msg="connection changed"`)
				})
				lines := r.Spoke.Audit(t, end)
				require.LessOrEqual(t, len(lines), 1)
				for _, line := range lines {
					require.Equal(t, string(code), line.Code)
					require.Contains(t, line.Why, string(tt.state))
				}
				require.Equal(t, before, r.Spoke.Sums(t), "it is not answered either")
			}
		})
	}
}

// sleeper starts an agent that goes on for longer than any test.
func sleeper(t *testing.T, m *meshtest.Mesh) (task string) {
	t.Helper()
	task = m.Spawn(t, "attic", "sleep", "600")
	m.Await(t, task, commands.Running)
	return task
}

// A host that suspends its hub starts nothing more for it. What runs goes on,
// can be killed and is reported; what was ordered meanwhile is done afterwards.
func TestAHostSuspendsItsHub(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	s := m.Spokes["attic"]
	killed, goesOn := sleeper(t, m), sleeper(t, m)

	s.Turn(t, "suspend")
	waits := m.Noop(t, "attic")
	m.Hub.Do(t, "POST", "/api/v1/tasks/"+killed+"/kill", map[string]any{"reason": "enough", "grace_ms": 0}, nil)

	require.Equal(t, commands.Cancelled, m.Wait(t, killed).State)
	require.Equal(t, commands.Running, m.Agent(t, goesOn).State)
	require.Equal(t, commands.Queued, m.Agent(t, waits).State)
	require.Equal(t, 2, s.Count(t, `SELECT count(*) FROM tasks`))

	s.Turn(t, "resume")

	require.Equal(t, commands.Completed, m.Wait(t, waits).State)
	m.Hub.Do(t, "POST", "/api/v1/tasks/"+goesOn+"/kill", map[string]any{"reason": "enough", "grace_ms": 0}, nil)
	m.Wait(t, goesOn)
	m.Check(t)
}

// A host that revokes its hub ends what the hub started, long before any lease
// is over, and says nothing to it any more: no result and no heartbeat.
func TestAHostRevokesItsHub(t *testing.T) {
	t.Parallel()
	m := meshtest.Plan{Slots: 1, Interval: 100 * time.Millisecond, Lease: time.Hour}.Start(t, "attic")
	s := m.Spokes["attic"]
	task := sleeper(t, m)
	queued := m.Noop(t, "attic")
	meshtest.Await(t, "the second task", func() bool { return m.Agent(t, queued).AcceptedAt != nil })
	known := m.Hub.Count(t, `SELECT count(*) FROM inbox`)

	began := time.Now()
	s.Turn(t, "revoke")

	meshtest.Await(t, "the end of the link", func() bool { return !m.View(t, "attic").Linked })
	t.Logf("the hub saw the link gone after %s", time.Since(began))
	meshtest.Await(t, "the end of its work", func() bool {
		return s.Count(t, `SELECT count(*) FROM tasks WHERE state = 'cancelled' AND reason = 'link_revoked' AND id IN ($1, $2)`, task, queued) == 2
	})
	require.Zero(t, s.Count(t, `SELECT count(*) FROM leases`))
	meshtest.Await(t, "the hub's verdict", func() bool { return m.View(t, "attic").Liveness != hub.Alive })
	require.Equal(t, known, m.Hub.Count(t, `SELECT count(*) FROM inbox`), "a revoked hub is told nothing")
}

// A hub that does not let a spoke link is seen at the spoke, with the reason.
func TestTheHostSeesWhyALinkIsDown(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")

	m.Hub.Exec(t, `UPDATE connections SET state = 'disconnected'`)

	var v spoke.HubView
	meshtest.Await(t, "the refusal", func() bool {
		m.Spokes["attic"].Do(t, "GET", "/api/v1/connections/lab", nil, &v)
		return strings.Contains(v.LinkError, "the hub does not admit this key")
	})
	require.False(t, v.Linked)
	require.Equal(t, store.Active, v.State)
}
