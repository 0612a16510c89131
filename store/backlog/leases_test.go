package backlog_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// A worker whose task was taken from it, or given to another one, has no lease
// any more that it could keep.
func TestOnlyTheFenceThatHoldsIsRenewed(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	b := boardOf(t, s, backlog.MainWorkspace)
	create(t, b, backlog.TaskSpec{Key: "A", Title: "a"})
	held := claimCards(t, b, nil)[0].Fence
	stale := held
	stale.Epoch--
	const long = `SELECT count(*) FROM leases WHERE until > now() + interval '30 minutes'`

	none, err := s.backlog.Renew(t.Context(), []backlog.Fence{stale}, time.Hour)
	require.NoError(t, err)
	require.Empty(t, none)
	require.Zero(t, s.Count(t, long))
	got, err := s.backlog.Renew(t.Context(), []backlog.Fence{stale, held}, time.Hour)

	require.NoError(t, err)
	require.Equal(t, map[backlog.Fence]bool{held: true}, got)
	require.Equal(t, 1, s.Count(t, long))
}
