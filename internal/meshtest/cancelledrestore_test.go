package meshtest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
)

// A hub that is restored to before it let an agent finish learns from its spoke that it has.
func TestAHubThatIsRestoredKnowsWhatItHasCancelled(t *testing.T) {
	t.Parallel()
	m, r := Start(t, "attic"), newTraced(t)
	sides := disaster{sides: []string{"hub"}}
	task := r.order(t, m, r.gate)
	m.Await(t, task, commands.Running)
	before := sides.backUp(t, m)
	m.AwaitLink(t, "attic")
	m.Hub.Do(t, "POST", "/api/v1/tasks/"+task+"/cancel", map[string]any{"reason": "not needed", "graceful": true}, nil)
	Await(t, "the cancel", func() bool { return m.Agent(t, task).ProtocolCancel == "sent" })

	sides.restore(t, m, before)
	agreeAgain(t, m, "attic")

	Await(t, "that the hub knows it", func() bool { return m.Agent(t, task).Reason == commands.CancelRequested })
	v := m.Agent(t, task)
	require.Nil(t, v.Kill)
	require.Contains(t, hub.Why(v, m.View(t, "attic"))[1].Text, "it was cancelled and may finish")
	require.ErrorContains(t, m.Hub.Ask(t, "POST", "/api/v1/tasks/"+task+"/retry", nil, nil), "it was cancelled and may finish")
	r.open(t)
	v = m.Wait(t, task)
	require.Equal(t, []any{commands.Completed, commands.CancelRequested}, []any{v.State, v.Reason})
}
