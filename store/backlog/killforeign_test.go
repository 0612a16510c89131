package backlog_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// A hub may forbid the task of another at the moment at which that comes, and neither sees the other. Its word ends nothing then, and is
// not what the task ends of.
func TestAKillOfAnotherHubIsNoneOfATask(t *testing.T) {
	t.Parallel()
	s, facts := told(t)
	s.Meet(t, store.Obeys)
	r := s.request()
	s.MeetAnother(t, store.Obeys)
	foreign := s.kill(r)
	foreign.Conn, foreign.Grace = s.Conn.ID, 0
	require.NoError(t, s.DB.Tx(t.Context(), "asking", func(ctx context.Context, tx *store.Tx) error {
		_, err := s.backlog.Request(ctx, tx, []backlog.Request{r})
		s.killed(foreign)
		return err
	}))
	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM kills`))
	f := s.claim()[0].Fence
	held, err := s.backlog.Record(t.Context(), []backlog.Progress{{Start: &backlog.Start{Fence: f, Pid: 1, BootID: "b"}}})
	require.NoError(t, err)
	require.Equal(t, []bool{true}, held)
	s.restored()

	_, pending, err := s.backlog.PendingKill(t.Context(), f.Task)
	require.NoError(t, err)
	require.False(t, pending, "its spoke ends it as it takes its agents over")
	pasts, err := s.backlog.Pasts(t.Context(), []string{f.Task})
	require.NoError(t, err)
	require.True(t, pasts[f.Task].Asked, "its end waits for what its own hub recalls")

	cancel := s.kill(r)
	cancel.Cancel = commands.CancelAfter
	require.Nil(t, s.killed(cancel))
	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM leases WHERE reason = 'cancel_requested'`))
	*facts = nil
	s.ends(f, commands.AttemptFailed, commands.NoReason)
	require.Len(t, *facts, 1)
	end := (*facts)[0]
	require.Equal(t, []any{commands.Failed, commands.CancelRequested, cancel.Asked.Command}, []any{end.State, end.Reason, end.Result().Kill})
}
