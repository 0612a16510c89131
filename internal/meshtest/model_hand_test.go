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

var (
	blocking   = handVerb{"block", (*backlog.Workspace).Block, commands.Blocked, commands.ByBlock}
	unblocking = handVerb{"unblock", (*backlog.Workspace).Unblock, commands.Queued, commands.ByUnblock}
)

var handVerbs = []handVerb{
	{"complete", (*backlog.Workspace).Complete, commands.Completed, commands.ByOperator},
	{"fail", (*backlog.Workspace).Fail, commands.Failed, commands.ByFailure},
	blocking, blocking, unblocking, unblocking,
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

func (m *machine) unblockAll() {
	for _, id := range m.ids {
		if m.ref.tasks[id].state == commands.Blocked {
			m.hand(id, unblocking)
		}
	}
}
