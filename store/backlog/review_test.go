package backlog_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// A database that was restored to before a review has taken over the rework of that: the review, when it comes again, is taken, counts, and
// moves nothing.
func TestAReviewWhoseReworkRunsIsTaken(t *testing.T) {
	t.Parallel()
	s, _ := told(t)
	v := s.delivered()
	s.exec(`UPDATE tasks SET conn = $1 WHERE id = $2`, s.Conn.ID, v.Task)
	v.Verdict, v.Message = commands.RequestChanges, "name it better"
	s.restored()
	require.NoError(t, s.backlog.LookForRestore(t.Context()))
	s.recall(commands.TaskStanding{Task: v.Task, State: commands.Running, Attempt: v.Attempt + 1})
	says := func(v commands.Review) (state commands.State, err error) {
		err = s.DB.Tx(t.Context(), "reviewing", func(ctx context.Context, tx *store.Tx) (err error) {
			state, err = s.backlog.Review(ctx, tx, s.Conn.ID, "lab", v)
			return err
		})
		return state, err
	}

	for range 2 { // once more changes nothing
		state, err := says(v)
		require.NoError(t, err)
		require.Equal(t, commands.Claimed, state)
	}

	require.Equal(t, 1, s.Count(t, `SELECT reworks FROM tasks WHERE id = $1`, v.Task))
	last, err := s.backlog.LastReview(t.Context(), v.Task)
	require.NoError(t, err)
	require.Equal(t, v.Message, last.Message, "a retry is told what is to be changed")
	v.Message = "and test it"
	_, err = says(v)
	require.Equal(t, commands.Conflict, commands.CodeOf(err), "the agent goes on with other words")
}
