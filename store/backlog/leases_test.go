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

// A restore may have forgotten what was done to an attempt of the backup, whatever the clocks of both hosts say, and to one that has not
// started here: it may have elsewhere. What has started since it knows.
func TestWhatAnOpenAttemptMayHaveForgotten(t *testing.T) {
	t.Parallel()
	side := newSide(t)
	s := scene{t, side, boardOf(t, side, backlog.MainWorkspace)}
	old := s.started()
	forgot := func() map[string]bool {
		open, err := s.backlog.OpenAttempts(t.Context(), string(s.Self()), nil, "")
		require.NoError(t, err)
		is := map[string]bool{}
		for _, a := range open {
			is[a.Fence.Task] = a.Forgot
		}
		return is
	}
	require.Equal(t, map[string]bool{old.Task: false}, forgot())
	s.exec(`UPDATE leases SET claimed_at = claimed_at + interval '1 hour', started_at = started_at + interval '1 hour'`)
	s.restored()
	s.recall(commands.TaskStanding{Task: old.Task, State: commands.Running, Attempt: 1})

	s.asks(s.request(), s.request())
	later := s.claim()
	require.Len(t, later, 2)
	_, err := s.backlog.Record(t.Context(), []backlog.Progress{{Start: &backlog.Start{Fence: later[0].Fence, Pid: 1, BootID: "b"}}})
	require.NoError(t, err)

	require.Equal(t, map[string]bool{old.Task: true, later[0].Fence.Task: false, later[1].Fence.Task: true}, forgot())
}
