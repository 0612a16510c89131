package meshtest

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/spoke"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// busy starts a mesh of one slot with an agent that runs in it and one that waits
// for it.
func busy(t *testing.T) (m *Mesh, s *Spoke, runs, waits string) {
	t.Helper()
	m = Plan{Slots: 1}.Start(t, "attic")
	runs = m.Spawn(t, "attic", "sleep", "600")
	m.Await(t, runs, commands.Running)
	waits = m.Noop(t, "attic")
	Await(t, "the second order", func() bool { return m.Agent(t, waits).AcceptedAt != nil })
	return m, m.Spokes["attic"], runs, waits
}

// An agent that waits for a free slot is told so by its host, too.
func TestAnAgentThatWaitsForASlot(t *testing.T) {
	t.Parallel()
	m, s, runs, waits := busy(t)
	why := func() (w backlog.Why) { s.Do(t, "GET", "/api/v1/tasks/"+waits+"/why", nil, &w); return w }

	require.Equal(t, []commands.WhyReason{{Code: commands.CauseSlots, Text: "no slot is free, of 1; it is the next order of its hub", Fix: "it starts when one is free", Figure: commands.Figure(1)}}, why().Reasons)
	require.False(t, why().Claimable)
	m.Hub.Do(t, "POST", "/api/v1/tasks/"+runs+"/kill", map[string]any{"reason": "enough", "grace_ms": 0}, nil)
	m.Wait(t, waits)
	reasons := why().Reasons
	require.Len(t, reasons, 1)
	require.Equal(t, commands.CauseEnded, reasons[0].Code, "it has ended")
}

// A slot is in use from when its agent has told that it started, whatever the heartbeat before
// that says.
func TestASlotIsInUseBeforeAHeartbeatSaysSo(t *testing.T) {
	t.Parallel()
	m := Plan{Slots: 1}.Start(t, "attic")
	require.Zero(t, m.View(t, "attic").Running)

	m.Await(t, m.Spawn(t, "attic", "sleep", "600"), commands.Running)

	require.Equal(t, 1, m.View(t, "attic").Running)
}

// What the hub ends while the link is down, the spoke hears at its next dial.
func TestARevocationAtTheHubIsToldLater(t *testing.T) {
	t.Parallel()
	m, s, _, _ := busy(t)
	s.Proxy.Cut()
	Await(t, "the end of the link", func() bool { return !m.View(t, "attic").Linked })
	m.Turn(t, "attic", "revoke")

	s.Proxy.Heal()

	Await(t, "the end at the spoke", func() bool {
		return s.Count(t, `SELECT count(*) FROM connections WHERE state = 'revoked' AND state_by = 'peer' AND state_reason = 'the test says so'`) == 1
	})
	Await(t, "the end of its work", func() bool { return s.Count(t, `SELECT count(*) FROM tasks WHERE state = 'cancelled'`) == 2 })
	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM attempts`), "what waited was not started")
}

// hub is the connection with the hub as the host of the spoke sees it.
func (s *Spoke) hub(t *testing.T) (v spoke.HubView) {
	t.Helper()
	s.Do(t, "GET", "/api/v1/connections/"+s.Conn, nil, &v)
	return v
}

// What the spoke ends while the link is down, the hub hears when it is reached
// again, also after the spoke was started anew.
func TestARevocationAtTheSpokeIsToldLater(t *testing.T) {
	t.Parallel()
	for name, restart := range map[string]bool{"by the process that ended it": false, "by the next one": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, s, runs, waits := busy(t)
			s.Proxy.Cut()
			Await(t, "the end of the link", func() bool { return !m.View(t, "attic").Linked && !s.hub(t).Linked })
			require.True(t, s.Turn(t, "suspend").Untold)
			require.True(t, s.Turn(t, "suspend").Untold, "it is so still")
			require.False(t, s.hub(t).Untold, "the link is down, which says it")
			require.True(t, s.Turn(t, "revoke").Untold)
			require.True(t, s.Turn(t, "revoke").Untold, "it is so still")
			require.True(t, s.hub(t).Untold)
			said := func(text string) int { return strings.Count(s.Log.String(), text) }
			Await(t, "the warning that it is not taken", func() bool { return said("level=WARN msg=\"the peer has not taken that the connection has ended") == 1 })
			if restart {
				Await(t, "the end of its agent", func() bool { return s.Count(t, `SELECT count(*) FROM leases`) == 0 })
				m.Stop(t, "attic")
				m.Start(t, "attic")
			}

			s.Proxy.Heal()

			Await(t, "the end at the hub", func() bool { return m.View(t, s.Conn).State == store.Revoked })
			for _, task := range []string{runs, waits} {
				require.Equal(t, commands.LinkRevoked, m.Wait(t, task).Reason)
			}
			require.Equal(t, 1, m.Hub.Count(t, `SELECT count(*) FROM connections WHERE state_by = 'peer' AND state_reason = 'the test says so'`))
			Await(t, "what the spoke knows of that", func() bool { return s.Count(t, `SELECT count(*) FROM connections WHERE end_told`) == 1 })
			Await(t, "what the spoke says of that", func() bool { return !s.hub(t).Untold })
			require.False(t, s.Turn(t, "revoke").Untold)
			require.True(t, federation.MayHaveToTell(store.Connection{Authority: store.Obeys, State: store.Revoked, Since: time.Now()}))
			require.False(t, federation.MayHaveToTell(store.Connection{Authority: store.Obeys, State: store.Revoked, Since: time.Now(), EndTold: true}), "it is not dialled any more")
		})
	}
}

// A spoke that did not hear that its connection is suspended because of a clone
// hears it at its next dial, and what becomes of the connection then.
func TestASuspensionIsToldLater(t *testing.T) {
	t.Parallel()
	m := Start(t, "attic")
	s := m.Spokes["attic"]
	state := func(state store.ConnState, by string) func() bool {
		return func() bool {
			return s.Count(t, `SELECT count(*) FROM connections WHERE state = $1 AND state_by = $2`, state, by) == 1
		}
	}
	s.Proxy.Cut()
	Await(t, "the end of the link", func() bool { return !m.View(t, "attic").Linked })
	m.Hub.Exec(t, `UPDATE connections SET state = 'suspended', state_by = 'clone', state_reason = 'two instances run'`)
	Await(t, "the suspension at the hub", func() bool { return m.View(t, "attic").State == store.Suspended })

	s.Proxy.Heal()

	Await(t, "the suspension at the spoke", state(store.Suspended, "peer"))
	require.False(t, m.View(t, "attic").Linked)
	m.Turn(t, "attic", "resume")
	s.Turn(t, "resume")
	require.Equal(t, commands.Completed, m.Wait(t, m.Noop(t, "attic")).State)
	m.Turn(t, "attic", "suspend")
	m.Turn(t, "attic", "revoke")
	Await(t, "the end at the spoke", state(store.Revoked, "peer"))
}

// Who waits for a free slot is told how many orders of the same hub stand before him, here and there.
func TestAnAgentThatWaitsInLine(t *testing.T) {
	t.Parallel()
	m, s, _, first := busy(t)
	accept := func(r hub.SpawnRequest) string {
		task := m.Order(t, r)
		Await(t, "its acceptance", func() bool { return m.Agent(t, task).AcceptedAt != nil })
		return task
	}
	noop := hub.SpawnRequest{Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeNoop}}
	file := hub.SpawnRequest{Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeExec, Argv: []string{"true"}, Files: []commands.File{{Path: "a"}}}, Values: commands.Values{commands.NewSecret("x")}}
	urgent := noop
	urgent.Spawn.Priority = 5
	second, third, before := accept(file), accept(noop), accept(urgent)

	for task, n := range map[string]int{before: 0, first: 1, second: 2, third: 3} {
		says := []string{"it is the next order of its hub", "1 order of its hub stands before it", "2 orders of its hub stand before it", "3 orders of its hub stand before it"}[n]
		var why backlog.Why
		s.Do(t, "GET", "/api/v1/tasks/"+task+"/why", nil, &why)
		require.Len(t, why.Reasons, 1)
		require.Equal(t, "no slot is free, of 1; "+says, why.Reasons[0].Text)
		v := m.Agent(t, task)
		require.NotNil(t, v.Before)
		require.Equal(t, n, *v.Before)
	}
}
