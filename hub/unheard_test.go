package hub_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
)

// An order that expired at its hub unheard, and that its spoke had started all the same, is said to run there, is not retried
// blindly, and is killed as any other.
func TestAnAgentThatWasEndedUnheardIsKilled(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t)
	a := m.Attack(t, "attic")
	asked := a.Order(t, m)
	m.Stop(t, "hub")
	m.Hub.Exec(t, `UPDATE mirrors SET expires_at = now() - interval '1 hour', created_at = now() - interval '2 hours' WHERE task = $1`, asked.Task)
	m.Start(t, "hub")
	meshtest.Await(t, "the link", func() bool { return a.Link.State().Up && m.View(t, "attic").Linked })
	a.Greet(t)
	require.Equal(t, "never started", m.Wait(t, asked.Task).Words())
	kill := func() (k hub.Killed) {
		m.Hub.Do(t, "POST", "/api/v1/tasks/"+asked.Task+"/kill", map[string]string{"reason": "not needed"}, &k)
		return k
	}
	why := func() (texts []string) {
		var v struct{ Reasons []commands.WhyReason }
		m.Hub.Do(t, "GET", "/api/v1/tasks/"+asked.Task+"/why", nil, &v)
		for _, r := range v.Reasons {
			texts = append(texts, r.Text+"; "+r.Fix)
		}
		return texts
	}

	begun := time.UnixMilli(1_700_000_000_000)
	a.Send(t, commands.QueueEvents, a.Seal(t, &commands.Started{Task: asked.Task, Attempt: 1, At: begun.UnixMilli()}, asked.Re, nil).Envelope)
	meshtest.Await(t, "the start", func() bool { return m.Agent(t, asked.Task).StartedAt != nil })

	v := m.Agent(t, asked.Task)
	require.Equal(t, "ended unheard", v.Words())
	require.Equal(t, "it was ended here unheard; it runs on attic since 2023-11-14T22:13:20Z", v.Clause())
	require.Contains(t, why()[1], "attic has started it, and has not told its end; spawnmesh kill "+commands.ShortID(asked.Task))
	err := m.Hub.Ask(t, "POST", "/api/v1/tasks/"+asked.Task+"/retry", nil, nil)
	require.Equal(t, commands.Conflict, commands.CodeOf(err))
	require.ErrorContains(t, err, "attic has started it and not told its end")

	require.True(t, kill().Ordered)
	re, _ := a.Ref(t, commands.KillKind, asked.Task)
	require.Equal(t, "unavailable", m.Agent(t, asked.Task).ProtocolCancel)
	require.Contains(t, why()[len(why())-1], "not needed; its spoke has not taken it yet")
	a.Send(t, commands.QueueEvents, a.Seal(t, &commands.Accepted{Task: asked.Task, State: commands.Running}, re, nil).Envelope)
	meshtest.Await(t, "that the spoke has the kill", func() bool { return m.Agent(t, asked.Task).ProtocolCancel == "sent" })

	a.Send(t, commands.QueueResults, a.Seal(t, &commands.Result{Task: asked.Task, State: commands.Cancelled, Attempt: 1, Reason: commands.KillRequested, Outcome: commands.AttemptKilled}, asked.Re, nil).Envelope)
	meshtest.Await(t, "its end", func() bool { return !m.Agent(t, asked.Task).Unheard })
	require.Contains(t, m.Agent(t, asked.Task).Clause(), "ended here unheard; attic has told its end since")
	require.Equal(t, commands.Expired, m.Agent(t, asked.Task).State, "an end stays")
	require.False(t, kill().Ordered)
}
