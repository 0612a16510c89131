package backlog_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// Whoever waits for tasks sweeps every second: a write would cost each of them a flush to the disk.
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

// A sweep counts what is ready, and not with it what has ended in each lane that there ever was.
func TestASweepReadsTheCountsOfWhatIsReady(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	require.NoError(t, s.Exec(`INSERT INTO counts (workspace, lane, what, n)
		SELECT 'w' || n % 10, 'l' || n, what, 3 FROM generate_series(1, 10000) AS n, unnest(ARRAY['completed', 'failed', 'cancelled', 'deps']) AS what UNION ALL SELECT 'main', 'l' || n, 'ready', 2 FROM generate_series(1, 5) AS n`))
	require.NoError(t, s.Exec(`ANALYZE counts`))
	w := &watcher{}
	db, err := store.Open(t.Context(), store.Config{URL: s.URL, Self: s.Self(), Signer: s.Signing, PoolSize: 2, Tracer: w})
	require.NoError(t, err)
	t.Cleanup(db.Close)
	var swept backlog.SweptUp
	watched := backlog.Open(db, nobodyAsks)

	list := w.during(t, func(ctx context.Context) (err error) { swept, err = watched.Sweep(ctx, time.Hour); return err })

	require.Equal(t, 10, swept.Ready)
	for _, sent := range list {
		plan := explain(t, w.config, sent)
		require.Less(t, plan.Hit+plan.Missed, 50.0, "blocks: %s", sent.sql)
	}
}

// What stands ready is counted also where another step of the sweep fails, and goes on failing.
func TestASweepThatFailsCountsAllTheSame(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	b := boardOf(t, s, backlog.MainWorkspace)
	create(t, b, backlog.TaskSpec{Title: "t"}, backlog.TaskSpec{Title: "later", NotBefore: time.Now().Add(time.Hour)})
	require.NoError(t, s.Exec(`UPDATE due SET at = now()`))
	_, err := owner(t, s.URL).Exec(t.Context(), `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''no''; END';
		CREATE TRIGGER refuse BEFORE DELETE ON due EXECUTE FUNCTION refuse()`)
	require.NoError(t, err)

	swept, err := s.backlog.Sweep(t.Context(), time.Hour)

	require.ErrorContains(t, err, "no")
	require.Equal(t, 1, swept.Ready)
}
