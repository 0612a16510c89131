package meshtest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// A question that was on its way when its agent was made to stand still is asked, and the agent is paused on both sides.
func TestAQuestionOfWhatStandsStill(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	task := p.Order(t, nil)
	p.toSpoke(t)
	c := p.claim(t, 1)[0]
	p.start(t, c)
	_, _, err := p.Hub.DB.OrderPause(t.Context(), commands.Pause{Task: task, Paused: true, Reason: "so"}, time.Hour, "test")
	require.NoError(t, err)
	p.toSpoke(t)
	held, err := p.backlog.MarkPaused(t.Context(), backlog.PauseRun{Fence: c.Fence, Paused: true})
	require.NoError(t, err)
	require.True(t, held)

	_, err = p.backlog.Ask(t.Context(), c.Fence, backlog.Inquiry{Key: "a", What: commands.Question{Text: "may I?"}, For: time.Hour})

	require.NoError(t, err)
	p.toHub(t)
	require.Equal(t, commands.Paused, p.Spoke.Standing(t)[task].State)
	require.Equal(t, commands.Paused, p.Mirror(t, task).State)
	asked, err := p.Hub.DB.Inquiries(t.Context(), task)
	require.NoError(t, err)
	require.Len(t, asked, 1)
}
