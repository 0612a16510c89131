package backlog_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// A sweep looks at the leases that may have run out, however many are held; and a
// renewal changes no index. What was renewed is held on, by less time too.
func TestASweepLooksAtLeasesThatMayHaveRunOut(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	b := boardOf(t, s, backlog.MainWorkspace)
	for _, key := range []string{"renewed", "shortened", "left"} {
		create(t, b, backlog.TaskSpec{Key: key, Title: "t"})
	}
	held := map[string]backlog.Fence{}
	for _, c := range claimCards(t, b, func(c *backlog.ClaimTerms) { c.Limit = 3 }) {
		held[c.Key] = c.Fence
	}
	require.NoError(t, s.Exec(`INSERT INTO leases (task, workspace, lane, attempt, epoch, type, owner, claim, until, sweep_at)
		SELECT gen_random_uuid(), 'main', 'default', 1, 1, 'initial', 'w', gen_random_uuid(), now() + interval '1 hour', now() + n * interval '1 hour' FROM generate_series(0, 1) AS n, generate_series(1, 500)`))
	w := &watcher{}
	db, err := store.Open(t.Context(), store.Config{URL: s.URL, Self: s.Self(), Signer: s.Signing, PoolSize: 2, Tracer: w})
	require.NoError(t, err)
	t.Cleanup(db.Close)
	watched := backlog.Open(db, nobodyAsks)
	sweep := func() (rows float64) {
		for _, sent := range w.during(t, func(ctx context.Context) error { _, err := watched.Sweep(ctx, time.Hour); return err }) {
			rows += explain(t, w.config, sent).Reads("leases")
		}
		return rows
	}
	sweep()

	require.LessOrEqual(t, sweep(), 2.0, "what it passed over was looked at in the sweep before; the next one is")
	require.NoError(t, s.Exec(`UPDATE leases SET sweep_at = '-infinity' WHERE task = $1`, held["shortened"].Task))
	require.LessOrEqual(t, sweep(), 10.0, "one is to be looked at")

	require.NoError(t, s.Exec(`UPDATE leases SET (until, sweep_at) = (now(), '-infinity') WHERE task IN ($1, $2)`, held["renewed"].Task, held["left"].Task))
	renew := func(ctx context.Context) error {
		_, err := watched.Renew(ctx, []backlog.Fence{held["renewed"]}, time.Hour)
		return err
	}
	for _, sent := range w.during(t, renew) {
		again(t, w.config, sent, func(tx pgx.Tx, call string) {
			_, err := tx.Exec(t.Context(), call, pgx.QueryExecModeSimpleProtocol)
			require.NoError(t, err)
			var updated, within int
			require.NoError(t, tx.QueryRow(t.Context(), `SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_xact_user_tables WHERE relname = 'leases'`).Scan(&updated, &within))
			require.Equal(t, updated, within, "renewed within its page")
		})
	}
	_, err = b.Renew(t.Context(), held["shortened"], time.Second)
	require.NoError(t, err)
	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM leases WHERE task = $1 AND sweep_at < now() + interval '1 minute'`, held["shortened"].Task))

	swept, err := watched.Sweep(t.Context(), time.Hour)
	require.NoError(t, err)
	require.Equal(t, 1, swept.Reclaimed)
	require.Equal(t, 0, s.Count(t, `SELECT count(*) FROM leases WHERE task = $1`, held["left"].Task))
	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM leases WHERE task = $1 AND sweep_at = until`, held["renewed"].Task))
}
