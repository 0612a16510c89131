package meshtest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/hub/api"
)

// waiting starts an agent that has the only slot of attic, and orders one that waits behind it there.
func waiting(t *testing.T, p Plan) (m *Mesh, open func(), waits string) {
	t.Helper()
	p.Slots = 1
	m = p.Start(t, "attic")
	_, open = gated(t, m)
	waits = m.Spawn(t, "attic", "true")
	Await(t, "that attic has the order", func() bool { return m.Agent(t, waits).AcceptedAt != nil })
	return m, open, waits
}

// never checks for a while that an agent is not started.
func (m *Mesh) never(t *testing.T, task string) {
	t.Helper()
	require.Never(t, func() bool { return m.Spokes["attic"].Count(t, `SELECT attempt FROM tasks WHERE id = $1`, task) > 0 }, 700*time.Millisecond, 50*time.Millisecond)
}

func (m *Mesh) freezes(t *testing.T, verb, scope, target string) {
	t.Helper()
	m.Hub.Do(t, "POST", "/api/v1/workspaces/main/freezes"+verb, map[string]string{"scope": scope, "target": target, "reason": "bad deploy"}, nil)
}

// What is frozen while the link is down is frozen at the spoke before it starts anything behind it.
func TestAFreezeReachesASpokeThatWasCutOff(t *testing.T) {
	t.Parallel()
	for scope, target := range map[string]string{"instance": "", "connection": "attic"} {
		t.Run(scope, func(t *testing.T) {
			t.Parallel()
			m, open, waits := waiting(t, Plan{})
			s := m.Spokes["attic"]
			s.Proxy.Cut()
			m.freezes(t, "", scope, target)
			s.Proxy.Heal()
			Await(t, "the freeze", func() bool { return s.Count(t, `SELECT count(*) FROM latches WHERE frozen`) == 1 })
			open()

			m.never(t, waits)
			require.Contains(t, s.Log.String(), "the hub has frozen its agents")
			v := m.View(t, "attic")
			require.NotNil(t, v.Frozen)
			require.Equal(t, "bad deploy", v.Frozen.Reason)
			for _, r := range []hub.SpawnRequest{{Spoke: "attic"}, {Any: true}} {
				r.Spawn = commands.Spawn{Runtime: commands.RuntimeNoop}
				err := m.Hub.Ask(t, "POST", "/api/v1/tasks", r.Revealed(), nil)
				require.Equal(t, commands.FrozenThere, commands.CodeOf(err), "%v", err)
				require.ErrorContains(t, err, "bad deploy")
			}

			m.freezes(t, "/lift", scope, target)

			require.Equal(t, commands.Completed, m.Wait(t, waits).State, "the hub calls for a heartbeat, so this is soon")
			require.Equal(t, commands.Completed, m.Wait(t, m.Noop(t, "attic")).State)
			m.Check(t)
		})
	}
}

// A spoke that was cut off beyond the lease of its connection has a free slot and an order that waits. The link that lets it start again
// brings the freeze from meanwhile first.
func TestAFreezeComesBeforeTheFirstStartOfAnIdleSpoke(t *testing.T) {
	t.Parallel()
	m, open, waits := waiting(t, Plan{Interval: time.Second, Idle: 20 * time.Millisecond}) // it tries to start it between any two heartbeats
	s := m.Spokes["attic"]
	Await(t, "a stored heartbeat", func() bool { return s.Count(t, `SELECT count(*) FROM heartbeats`) == 1 })
	s.Proxy.Cut()
	m.freezes(t, "", "connection", "attic")
	m.Stop(t, "attic")
	s.Exec(t, `UPDATE heartbeats SET at = clock_timestamp() - interval '25 hours'`)
	m.Start(t, "attic")
	Await(t, "the end of the lease", func() bool {
		return s.Count(t, `SELECT count(*) FROM connections WHERE state = 'suspended' AND state_by = 'lease'`) == 1
	})
	open()
	Await(t, "a free slot", func() bool { return s.Count(t, `SELECT count(*) FROM leases`) == 0 })
	m.never(t, waits)
	require.Zero(t, s.Count(t, `SELECT count(*) FROM latches WHERE frozen`), "it has not heard of the freeze")

	s.Proxy.Heal()

	Await(t, "a new lease", func() bool { return s.Count(t, `SELECT count(*) FROM connections WHERE state = 'active'`) == 1 })
	Await(t, "the freeze", func() bool { return s.Count(t, `SELECT count(*) FROM latches WHERE frozen`) == 1 })
	m.never(t, waits)
	m.freezes(t, "/lift", "connection", "attic")
	require.Equal(t, commands.Completed, m.Wait(t, waits).State)
	m.Check(t)
}

// A hub that cannot read what is frozen says nothing that its spoke would start anything by.
func TestAFreezeThatCannotBeReadStartsNothing(t *testing.T) {
	t.Parallel()
	m, open, waits := waiting(t, Plan{})
	s := m.Spokes["attic"]
	s.Proxy.Cut()
	m.freezes(t, "", "connection", "attic")
	release := m.Hub.holdTable(t, "freezes", "ACCESS EXCLUSIVE")
	s.Proxy.Heal()
	healed := time.Now()
	Await(t, "an answer of the hub over the new link", func() bool {
		at := s.hub(t).LastSeen
		return at != nil && at.After(healed)
	})
	open()
	m.never(t, waits)

	release()

	Await(t, "the freeze", func() bool { return s.Count(t, `SELECT count(*) FROM latches WHERE frozen`) == 1 })
	m.never(t, waits)
	m.freezes(t, "/lift", "connection", "attic")
	require.Equal(t, commands.Completed, m.Wait(t, waits).State)
}

// A kill from while the link was down is taken before anything is started behind it, however long it takes.
func TestAKillComesBeforeTheFirstStartAfterTheLink(t *testing.T) {
	t.Parallel()
	m, open, waits := waiting(t, Plan{})
	s := m.Spokes["attic"]
	s.Proxy.Cut()
	m.Hub.Do(t, "POST", "/api/v1/tasks/"+waits+"/kill", map[string]string{"reason": "not needed"}, nil)
	release := s.holdInbox(t)
	s.Proxy.Heal()
	m.AwaitLink(t, "attic")
	open()
	m.never(t, waits)

	release()

	v := m.Wait(t, waits)
	require.Equal(t, commands.Cancelled, v.State)
	require.Zero(t, v.Attempt)
	require.Equal(t, commands.Completed, m.Wait(t, m.Noop(t, "attic")).State)
	m.Check(t)
}

// A hub whose control does not come holds up what it has ordered for a while only.
func TestAControlThatDoesNotComeIsNotWaitedForForEver(t *testing.T) {
	t.Parallel()
	m, open, waits := waiting(t, Plan{HoldFor: time.Second})
	s := m.Spokes["attic"]
	s.Proxy.Cut()
	m.Hub.Do(t, "POST", "/api/v1/tasks/"+waits+"/kill", map[string]string{"reason": "not needed"}, nil)
	release := s.holdInbox(t)
	s.Proxy.Heal()
	m.AwaitLink(t, "attic")
	open()

	Await(t, "the start", func() bool { return s.Count(t, `SELECT attempt FROM tasks WHERE id = $1`, waits) > 0 })
	release()
	require.True(t, m.Wait(t, waits).State.Terminal())
	m.Check(t)
}

// A host that joins anew under its name is frozen as it was.
func TestWhoJoinsAnewStaysFrozen(t *testing.T) {
	t.Parallel()
	m := Start(t, "attic")
	m.freezes(t, "", "connection", "attic")
	m.Hub.Do(t, "POST", "/api/v1/connections/attic/revoke", map[string]string{"reason": "a new disk"}, nil)
	m.Stop(t, "attic")
	s := m.Newcomer(t, "attic")
	_, err := s.JoinWith(t, m.Token(t, "attic", s.Proxy))
	require.NoError(t, err)
	r := hub.SpawnRequest{Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeNoop}}

	err = m.Hub.Ask(t, "POST", "/api/v1/tasks", r.Revealed(), nil)

	require.Equal(t, commands.FrozenThere, commands.CodeOf(err), "%v", err)
	m.freezes(t, "/lift", "connection", "attic")
	require.NoError(t, m.Hub.Ask(t, "POST", "/api/v1/tasks", r.Revealed(), nil))
}

// A host that has frozen what its hub orders says so, and the hub does not say that it takes work.
func TestAHostThatFreezesSaysSo(t *testing.T) {
	t.Parallel()
	m := Start(t, "attic")
	for scope, target := range map[string]string{"instance": "", "workspace": "", "connection": "lab"} {
		body := map[string]string{"scope": scope, "target": target, "reason": "my turn"}
		m.Spokes["attic"].Do(t, "POST", "/api/v1/workspaces/main/freezes", body, nil)
		Await(t, "that the hub knows", func() bool { return strings.Contains(m.View(t, "attic").StartsNone, "my turn") })
		m.Spokes["attic"].Do(t, "POST", "/api/v1/workspaces/main/freezes/lift", body, nil)
		Await(t, "that the hub knows of the end", func() bool { return m.View(t, "attic").StartsNone == "" })
	}
}

// What a hub has frozen is in the list of its spoke's host, in one line each, and the audit of both has it under the
// connection.
func TestAFreezeIsSeenOnBothSides(t *testing.T) {
	t.Parallel()
	m := Start(t, "attic")
	s := m.Spokes["attic"]
	m.freezes(t, "", "connection", "attic")
	var list struct{ Items []api.Freeze }
	Await(t, "the freeze", func() bool {
		s.Do(t, "GET", "/api/v1/workspaces/main/freezes", nil, &list)
		return len(list.Items) == 1
	})
	require.Equal(t, "lab", list.Items[0].Target)
	require.Equal(t, "bad deploy", list.Items[0].Reason)
	m.Hub.Do(t, "GET", "/api/v1/workspaces/main/freezes", nil, &list)
	require.Equal(t, "attic", list.Items[0].Target)
	for side, object := range map[*Instance]string{m.Hub.Instance: "attic", s.Instance: "lab"} {
		var rows struct{ Items []api.AuditRow }
		side.Do(t, "GET", "/api/v1/audit?object="+object, nil, &rows)
		require.True(t, slices.ContainsFunc(rows.Items, func(r api.AuditRow) bool { return strings.HasSuffix(r.Action, "freeze") || r.Action == "peer.frozen" }), "%v", rows)
	}
	require.Contains(t, m.Hub.Log.String(), "what may be started was changed by hand")
	for _, reason := range []string{"", "  ", strings.Repeat("x", 1001)} {
		err := m.Hub.Ask(t, "POST", "/api/v1/workspaces/main/freezes", map[string]string{"scope": "instance", "reason": reason}, nil)
		require.Equal(t, commands.Validation, commands.CodeOf(err), "%q", reason)
	}
	m.freezes(t, "", "instance", "")
	require.Contains(t, m.View(t, "attic").Frozen.Reason, "; and by ", "both are said")
}
