package backlog_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
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

// An attempt that was never begun has used nothing.
func TestOnlyWhatWasBegunIsCharged(t *testing.T) {
	t.Parallel()
	for outcome, want := range map[commands.Outcome]backlog.Amount{commands.CouldNotStart: 0, commands.Released: 0, commands.AttemptFailed: 80} {
		t.Run(string(outcome), func(t *testing.T) {
			t.Parallel()
			s := newSide(t)
			b := boardOf(t, s, backlog.MainWorkspace)
			budget(t, b, backlog.Budget{Name: "day", Scope: "workspace", Dimension: "tokens", Hard: 100 * backlog.Unit})
			create(t, b, backlog.TaskSpec{Key: "A", Title: "a", Estimate: tokens(80)})
			c := claimCards(t, b, nil)

			held, err := s.backlog.Record(t.Context(), []backlog.Progress{{End: &backlog.End{Fence: c[0].Fence, Outcome: outcome}}})

			require.NoError(t, err)
			require.Equal(t, []bool{true}, held)
			used, reserved := left(t, b, "day")
			require.Equal(t, []backlog.Amount{want, 0}, []backlog.Amount{used, reserved})
		})
	}
}
