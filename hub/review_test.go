package hub_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
)

// An approval that its spoke never took is shown as expired, and is to be said again; one that may come to it yet is not.
func TestAnApprovalThatExpiredIsSaidAgain(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	task := p.Order(t, nil)
	require.NoError(t, p.Hub.Exec(`UPDATE mirrors SET state = 'in_review', attempt = 1 WHERE task = $1`, task))
	approve := func() bool {
		_, before, err := p.Hub.DB.OrderReview(t.Context(), commands.Review{Task: task, Attempt: 1, Verdict: commands.Approve, By: "ann"})
		require.NoError(t, err)
		return before
	}
	fix := func() string {
		return why(t, hub.AgentView{Mirror: p.Mirror(t, task)}, linked(nil))[0].Fix
	}
	require.False(t, approve())
	require.True(t, approve(), "it is said once more")
	require.Contains(t, fix(), "review merge")
	require.NoError(t, p.Hub.Exec(`UPDATE mirrors SET review = review || jsonb_build_object('at', now() - interval '8 days') WHERE task = $1`, task))

	v := hub.AgentView{Mirror: p.Mirror(t, task)}
	require.Equal(t, commands.Approved, v.State)
	require.Contains(t, v.ReviewSaid(), "it expired before")
	require.Equal(t, "spawnmesh review approve "+commands.ShortID(task), fix())
	require.False(t, approve(), "it is sent again")
	require.Contains(t, fix(), "review merge")
}
