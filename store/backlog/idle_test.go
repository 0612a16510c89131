package backlog_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// Spokes sweep every second and whoever waits for tasks every two: a write would
// cost each of them a flush to the disk.
func TestASweepThatMovesNothingWritesNothing(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	b := boardOf(t, s, backlog.MainWorkspace)
	soft := 5 * backlog.Unit
	require.NoError(t, b.SetBudget(t.Context(), backlog.Budget{Name: "day", Scope: "workspace", Dimension: "tokens", Hard: 9 * backlog.Unit, Soft: &soft, Rolling: backlog.Seconds(time.Hour), OnHard: "cancel"}))
	create(t, b, backlog.TaskSpec{Key: "claimed", Title: "t"})
	require.Len(t, claimCards(t, b, nil), 1)
	create(t, b, backlog.TaskSpec{Key: "ready", Title: "t"}, backlog.TaskSpec{Key: "later", Title: "t", NotBefore: time.Now().Add(time.Hour)})
	marks := func() int { return s.Count(t, `SELECT coalesce(sum(mark), 0)::int FROM last_commits`) }
	before := marks()

	_, err := s.backlog.Sweep(t.Context(), time.Hour)

	require.NoError(t, err)
	require.Equal(t, before, marks(), "a transaction that writes leaves a mark")
	require.NoError(t, s.Exec(`UPDATE due SET at = now()`))
	swept, err := s.backlog.Sweep(t.Context(), time.Hour)
	require.NoError(t, err)
	require.EqualValues(t, 1, swept.Promoted)
	require.NotEqual(t, before, marks(), "and this one did")
}
