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

// What is left of attempts that are over goes some at a time: the sweep waits for it.
func TestOverrunsAreNotedSomeAtATime(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	require.NoError(t, s.Exec(`INSERT INTO overruns (task, workspace, attempt, due, patience) SELECT gen_random_uuid(), 'main', 1, now(), '1 hour' FROM generate_series(1, 1500)`))
	f := scene{t, s, boardOf(t, s, backlog.MainWorkspace)}.running()
	_, err := s.backlog.Record(t.Context(), []backlog.Progress{{Start: &backlog.Start{Fence: f, Pid: 1, BootID: "b", Overruns: time.Millisecond, Patience: time.Hour}}})
	require.NoError(t, err)
	require.NoError(t, s.Exec(`UPDATE overruns SET due = now() - interval '1 second' WHERE task = $1`, f.Task))

	for _, left := range []int{502, 1} {
		_, _, err = s.backlog.Overruns(t.Context(), string(s.Self()), time.Hour)
		require.NoError(t, err)
		require.Equal(t, left, s.Count(t, `SELECT count(*) FROM overruns`))
		require.NoError(t, s.Exec(`UPDATE overruns SET due = now() - interval '1 second' WHERE task = $1`, f.Task))
	}
}
