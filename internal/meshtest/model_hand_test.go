package meshtest

import (
	"context"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// handVerb is what a host does by hand to a task that no attempt holds.
type handVerb struct {
	name string
	act  func(*backlog.Workspace, context.Context, backlog.Act) (backlog.Task, error)
	to   commands.State
	by   commands.Trigger
}

var handVerbs = []handVerb{
	{"complete", (*backlog.Workspace).Complete, commands.Completed, commands.ByOperator},
	{"fail", (*backlog.Workspace).Fail, commands.Failed, commands.ByFailure},
	{"block", (*backlog.Workspace).Block, commands.Blocked, commands.ByBlock},
	{"block", (*backlog.Workspace).Block, commands.Blocked, commands.ByBlock},
	{"unblock", (*backlog.Workspace).Unblock, commands.Queued, commands.ByUnblock},
	{"unblock", (*backlog.Workspace).Unblock, commands.Queued, commands.ByUnblock},
}

// byHand lets the host do something to some task. What is held is its agent's.
func (m *machine) byHand(rt *rapid.T) {
	id := m.task(rt)
	v := handVerbs[rapid.IntRange(0, len(handVerbs)-1).Draw(rt, "verb")]
	m.hand(id, v)
}

func (m *machine) hand(id string, v handVerb) {
	t := m.ref.tasks[id]
	may := t.here && !t.leased && commands.May(t.state, v.to, v.by)
	again := t.here && t.state == v.to && v.to != commands.Queued
	board, err := m.backlog.Workspace(backlog.MainWorkspace, "test")
	require.NoError(m, err)
	if may && v.to == commands.Queued {
		require.NoError(m, m.Spoke.Exec(`UPDATE tasks SET not_before = NULL WHERE state = 'blocked'`)) // however short its back-off was
	}

	_, err = v.act(board, m.Context(), backlog.Act{Task: id, Reason: "so"})

	require.Equal(m, may || again, err == nil, "%s of a task that is %s: %v", v.name, t.state, err)
	if may {
		t.state, t.later = v.to, false
		t.epoch++
		if v.to == commands.Blocked {
			t.withdrawAll()
		}
	}
	m.say()
}

// interfere blocks, kills, times out or lets go on what waits for an answer or stands still: few tasks do, and what comes to any task seldom comes to those.
func (m *machine) interfere(rt *rapid.T) {
	var waiting, held []string
	for _, id := range m.ids {
		switch t := m.ref.tasks[id]; {
		case t.state == commands.AwaitingInput && !t.leased:
			waiting = append(waiting, id)
		case t.leased && (t.state == commands.AwaitingInput || t.state == commands.Paused):
			held = append(held, id)
		}
	}
	if len(waiting) == 0 || len(held) > 0 && rapid.Bool().Draw(rt, "held") {
		waiting = held
	}
	if len(waiting) == 0 {
		rt.Skip("nothing waits")
	}
	id := rapid.SampledFrom(waiting).Draw(rt, "of those that wait")
	t := m.ref.tasks[id]
	f := backlog.Fence{Task: id, Attempt: t.attempt, Epoch: t.epoch}
	switch how := rapid.IntRange(0, 3).Draw(rt, "how"); {
	case how == 0:
		m.killAs(id, "")
		m.carryToSpoke(m.orders[len(m.orders)-1:])
	case how == 1 && t.leased && t.state == commands.Paused:
		m.pauses(id, false)
		m.carryToSpoke(m.orders[len(m.orders)-1:])
		m.proves(f, t.pause.wanted)
	case t.leased:
		m.endAs(f, commands.TimedOut)
	default:
		m.hand(id, handVerbs[2])
	}
}

func (m *machine) unblockAll() {
	for _, id := range m.ids {
		if m.ref.tasks[id].state == commands.Blocked {
			m.hand(id, handVerbs[len(handVerbs)-1])
		}
	}
}
