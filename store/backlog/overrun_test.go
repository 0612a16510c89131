package backlog_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

func TestWhatIsEstimatedGoesWithItsAttempt(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	f := scene{t, s, boardOf(t, s, backlog.MainWorkspace)}.running()
	_, err := s.backlog.Record(t.Context(), []backlog.Progress{{Start: &backlog.Start{Fence: f, Pid: 1, BootID: "b", Overruns: time.Hour, Patience: time.Hour}}})
	require.NoError(t, err)
	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM overruns WHERE task = $1`, f.Task))

	_, err = s.backlog.Record(t.Context(), []backlog.Progress{{End: &backlog.End{Fence: f, Outcome: commands.Succeeded}}})

	require.NoError(t, err)
	require.Zero(t, s.Count(t, `SELECT count(*) FROM overruns`))
}

// An attempt has started when its supervisor says, also where that is recorded late, but at no time before its claim or after now: another
// clock may have said it.
func TestAnAttemptHasStartedWhenItWasExecuted(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ ago, started time.Duration }{
		"recorded late":             {20 * time.Minute, 20 * time.Minute},
		"by a clock that is behind": {3 * time.Hour, time.Hour},
		"by a clock that is ahead":  {-time.Hour, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSide(t)
			f := scene{t, s, boardOf(t, s, backlog.MainWorkspace)}.running()
			now := time.Now().Truncate(time.Microsecond)
			require.NoError(t, s.Exec(`UPDATE leases SET started_at = NULL, claimed_at = $2 WHERE task = $1`, f.Task, now.Add(-time.Hour)))
			begun := &backlog.Start{Fence: f, Pid: 1, BootID: "b", Overruns: time.Hour, Patience: time.Hour, At: now.Add(-tt.ago)}

			held, err := s.backlog.Record(t.Context(), []backlog.Progress{{Start: begun}})

			require.NoError(t, err)
			require.Equal(t, []bool{true}, held)
			at := `SELECT count(*) FROM leases l JOIN overruns o USING (task) WHERE o.due = l.started_at + interval '1 hour' AND l.started_at `
			if tt.started > 0 {
				require.Equal(t, 1, s.Count(t, at+`= $1`, now.Add(-tt.started)))
			} else {
				require.Equal(t, 1, s.Count(t, at+`BETWEEN $1 AND now()`, now))
			}
		})
	}
}

// What is left of attempts that are over goes some at a time: the sweep waits for it.
func TestOverrunsAreNotedSomeAtATime(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	require.NoError(t, s.Exec(`INSERT INTO overruns (task, workspace, attempt, due, patience) SELECT gen_random_uuid(), 'main', 1, now(), '1 hour' FROM generate_series(1, 1500)`))
	f := scene{t, s, boardOf(t, s, backlog.MainWorkspace)}.running()
	_, err := s.backlog.Record(t.Context(), []backlog.Progress{{Start: &backlog.Start{Fence: f, Pid: 1, BootID: "b", Overruns: time.Millisecond, Patience: time.Hour}}})
	require.NoError(t, err)
	require.NoError(t, s.Exec(`UPDATE overruns SET due = now() - interval '10 minutes' WHERE task = $1`, f.Task))

	for _, left := range []int{502, 1} {
		_, _, err = s.backlog.Overruns(t.Context(), string(s.Self()), &backlog.Look{}, time.Hour)
		require.NoError(t, err)
		require.Equal(t, left, s.Count(t, `SELECT count(*) FROM overruns`))
		require.NoError(t, s.Exec(`UPDATE overruns SET due = now() - interval '10 minutes' WHERE task = $1`, f.Task))
	}
}

// A clock that is set ends nothing that has not run as long as it was estimated to, and puts off nothing: what is due moves along, that
// which was noted by the clock as it was.
func TestASetClockOverrunsNothing(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	f := scene{t, s, boardOf(t, s, backlog.MainWorkspace)}.running()
	_, err := s.backlog.Record(t.Context(), []backlog.Progress{{Start: &backlog.Start{Fence: f, Pid: 1, BootID: "b", Overruns: time.Hour, Patience: 10 * time.Minute}}})
	require.NoError(t, err)
	var last backlog.Look
	look := func() (warned int, next time.Duration) {
		list, next, err := s.backlog.Overruns(t.Context(), string(s.Self()), &last, 24*time.Hour)
		require.NoError(t, err)
		return len(list), next
	}
	set := func(step time.Duration) { // what was noted is that much older, or newer, by the new clock
		last.Step(step)
		require.NoError(t, s.Exec(`UPDATE overruns SET due = due - $1::interval, warned_at = warned_at - $1::interval`, step))
		require.NoError(t, s.Exec(`UPDATE leases SET progress_at = progress_at - $1::interval`, step))
	}
	look()

	for _, step := range []time.Duration{2 * time.Hour, -3 * time.Hour, time.Second} {
		set(step)
		warned, next := look()
		require.Zero(t, warned, step)
		require.InDelta(t, time.Hour, next, float64(time.Minute), step)
	}
}

// What an agent that was warned of has told puts its end off, also where the clock was set after that.
func TestProgressBeforeTheClockWasSetCounts(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	f := scene{t, s, boardOf(t, s, backlog.MainWorkspace)}.running()
	_, err := s.backlog.Record(t.Context(), []backlog.Progress{{Start: &backlog.Start{Fence: f, Pid: 1, BootID: "b", Overruns: time.Hour, Patience: 10 * time.Minute}}})
	require.NoError(t, err)
	require.NoError(t, s.Exec(`UPDATE overruns SET warned_at = now() - interval '9 min', due = now() + interval '1 min'`))
	require.NoError(t, s.Exec(`UPDATE leases SET progress_at = now() - interval '2 min'`))
	var last backlog.Look
	_, _, err = s.backlog.Overruns(t.Context(), string(s.Self()), &last, 24*time.Hour)
	require.NoError(t, err)
	last.Step(time.Hour)
	require.NoError(t, s.Exec(`UPDATE overruns SET due = due - interval '1 hour', warned_at = warned_at - interval '1 hour'`))

	_, next, err := s.backlog.Overruns(t.Context(), string(s.Self()), &last, 24*time.Hour)

	require.NoError(t, err)
	require.InDelta(t, 8*time.Minute, next, float64(time.Minute))
	require.Zero(t, s.Count(t, `SELECT count(*) FROM overruns WHERE over_at IS NOT NULL`))
}

// A look that takes long does not say whether the clock was set: nothing is noted by it. The next one that is quick does, and after some
// that are not what is due is noted.
func TestALongLookNotesNothing(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	f := scene{t, s, boardOf(t, s, backlog.MainWorkspace)}.running()
	_, err := s.backlog.Record(t.Context(), []backlog.Progress{{Start: &backlog.Start{Fence: f, Pid: 1, BootID: "b", Overruns: time.Hour, Patience: 10 * time.Minute}}})
	require.NoError(t, err)
	var last backlog.Look
	look := func(long time.Duration) (noted int, next time.Duration) {
		last.Long(long)
		_, next, err := s.backlog.Overruns(t.Context(), string(s.Self()), &last, 24*time.Hour)
		require.NoError(t, err)
		return s.Count(t, `SELECT count(*) FROM overruns WHERE warned_at IS NOT NULL`), next
	}
	const quick, slow = time.Hour, time.Nanosecond
	look(quick)
	last.Step(2 * time.Hour)
	require.NoError(t, s.Exec(`UPDATE overruns SET due = due - interval '2 hours'`))

	for range 5 {
		noted, next := look(slow)
		require.Zero(t, noted)
		require.Equal(t, time.Second, next)
	}
	noted, next := look(quick)
	require.Zero(t, noted)
	require.InDelta(t, time.Hour, next, float64(time.Minute))

	require.NoError(t, s.Exec(`UPDATE overruns SET due = now()`))
	for range 5 {
		noted, _ = look(slow)
		require.Zero(t, noted)
	}
	noted, _ = look(slow)
	require.Equal(t, 1, noted)
}
