package hub_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
	"github.com/spawnmesh/spawnmesh/signing"
)

// earlyBeat is a heartbeat of a clock that is ahead by so many minutes, with numbers, which has heard of a freeze.
func earlyBeat(t *testing.T, a *meshtest.Attacker, ahead, heeds int64) []byte {
	t.Helper()
	return a.Seal(t, &commands.Heartbeat{IntervalMS: 3_600_000, KillLevel: "group", Connection: commands.ConnectionView{State: "active", Heeds: heeds, Numbers: &commands.Numbering{Sent: a.Seq.Load()}}}, nil,
		func(h *signing.Header) { h.Iat, h.Exp = h.Iat+ahead*60_000, h.Exp+ahead*60_000 }).Envelope
}

// A spoke whose clock is ahead is told of a freeze, over a link that is up and over a new one. Until it says that it has heard of
// it, nobody says that it starts nothing.
func TestAFreezeIsToldToAClockThatIsAhead(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t)
	a := m.Attack(t, "clocky")
	accept(t, m, a, a.Order(t, m))
	var answer struct{ Unheard []string }
	m.Hub.Do(t, "POST", "/api/v1/workspaces/main/freezes", map[string]string{"scope": "instance", "reason": "bad deploy"}, &answer)
	require.Equal(t, []string{"clocky"}, answer.Unheard)

	told := a.Answered(t, earlyBeat(t, a, 10, 0)).Connection.Freeze
	require.True(t, told.Frozen)
	require.Contains(t, reasonsOf(t, m.Hub.Instance, "clocky")[commands.CauseFreeze], "has not heard yet that what is ordered on it is frozen by ")
	relink(t, m, a)
	again := a.Answered(t, earlyBeat(t, a, 10, told.Number))

	require.Equal(t, told, again.Connection.Freeze)
	require.Contains(t, reasonsOf(t, m.Hub.Instance, "clocky")[commands.CauseFreeze], "gets nothing: what is ordered on it is frozen by ")
	require.Equal(t, signing.TimeFuture, m.View(t, "clocky").BeatRefused.Code, "its clock is named all the same")
}

// An agent on a spoke whose clock is ahead is killed over a new link, too.
func TestAKillGoesOverANewLinkToAClockThatIsAhead(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t)
	a := m.Attack(t, "clocky")
	asked := a.Order(t, m)
	relink(t, m, a)
	m.Hub.Do(t, "POST", "/api/v1/tasks/"+asked.Task+"/kill", map[string]string{"reason": "not needed"}, nil)
	require.Empty(t, a.Heard(commands.KillKind), "nothing is relayed before the histories agree")

	require.NotNil(t, a.Answered(t, earlyBeat(t, a, 10, 0)).Connection.Numbers)

	a.Ref(t, commands.KillKind, asked.Task)
}

// Of heartbeats that come before their time an older one says nothing over the same link: it may be a replay.
func TestAnEarlyHeartbeatThatIsReplayed(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t)
	a := m.Attack(t, "clocky")
	m.Hub.Do(t, "POST", "/api/v1/workspaces/main/freezes", map[string]string{"scope": "instance", "reason": "bad deploy"}, nil)
	old := earlyBeat(t, a, 9, 0)
	number := a.Answered(t, old).Connection.Freeze.Number
	a.Answered(t, earlyBeat(t, a, 10, number))

	a.Answered(t, old)

	require.Contains(t, reasonsOf(t, m.Hub.Instance, "clocky")[commands.CauseFreeze], "gets nothing")
}
