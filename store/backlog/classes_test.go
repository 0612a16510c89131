package backlog_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/internal/pgtest"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// A claim asks what decides for each class that has ready tasks. What the planner
// can open costs a look into an index then; a function that it has to call, several times that.
func TestAClaimCallsNoFunctionForEachClass(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	b := boardOf(t, s, backlog.MainWorkspace)
	const classes = 50
	for i := range classes {
		create(t, b, backlog.TaskSpec{Title: "t", Lane: fmt.Sprint("l", i)}, backlog.TaskSpec{Title: "t", Lane: fmt.Sprint("l", i)})
	}
	w := &watcher{}
	db, err := store.Open(t.Context(), store.Config{URL: s.URL, Self: s.DB.Self(), Signer: s.Signing, PoolSize: 2, Tracer: w})
	require.NoError(t, err)
	t.Cleanup(db.Close)
	watched, err := backlog.Open(db, nobodyAsks).Workspace(backlog.MainWorkspace, "ann")
	require.NoError(t, err)

	claim := func(n int) func(context.Context) error {
		return func(ctx context.Context) error {
			list, err := watched.Claim(ctx, backlog.ClaimTerms{Owner: "w", Limit: n})
			return counted(len(list), n, err)
		}
	}
	require.NoError(t, claim(1)(t.Context()), "the first claim makes a key")

	for _, tt := range []struct {
		prepare func()
		n       int
	}{
		{func() {}, 1},
		{func() {}, 10},
		{func() { require.NoError(t, b.SetLane(t.Context(), backlog.Lane{Name: "l1", Weight: 2})) }, 10}, // another statement
	} {
		tt.prepare()
		for _, sent := range w.during(t, claim(tt.n)) {
			for function, calls := range called(t, w.config, sent) {
				require.Less(t, calls, classes/2, "%s, in a claim of %d", function, tt.n)
			}
		}
	}
}

// called runs a statement as it was run, without effect, and counts how often it
// calls each function that is not opened.
func called(t *testing.T, config *pgx.ConnConfig, s watched) map[string]int {
	t.Helper()
	admin, err := pgx.ParseConfig(pgtest.Admin(config.ConnString())) // nobody else may have calls counted
	require.NoError(t, err)
	config = config.Copy()
	config.User, config.Password = admin.User, admin.Password
	config.RuntimeParams["options"] = "-c track_functions=all"
	calls := map[string]int{}
	again(t, config, s, func(tx pgx.Tx, call string) {
		_, err := tx.Exec(t.Context(), call, pgx.QueryExecModeSimpleProtocol)
		require.NoError(t, err, s.sql)
		rows, err := tx.Query(t.Context(), `SELECT funcname, calls FROM pg_stat_xact_user_functions`)
		require.NoError(t, err)
		var function string
		var n int
		_, err = pgx.ForEachRow(rows, []any{&function, &n}, func() error { calls[function] = n; return nil })
		require.NoError(t, err)
	})
	return calls
}
