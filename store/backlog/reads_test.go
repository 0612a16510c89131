package backlog_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/internal/pgtest"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// A claim reads what it needs in ready, and a task only where there is a body. It
// reads no class but those that it asks about, however many there are.
func TestAClaimReadsWhatItTakes(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	b := boardOf(t, s, backlog.MainWorkspace)
	require.NoError(t, s.Exec(`INSERT INTO classes (workspace, lane, kind, capabilities, account, sizes, digest)
		SELECT 'main', 'default', 'card', '{}', '', '{}', n::text::bytea FROM generate_series(1, 1000) AS n`))
	budget(t, b, backlog.Budget{Name: "day", Scope: "workspace", Dimension: "tokens", Hard: 1000 * backlog.Unit})
	specs := make([]backlog.TaskSpec, 20)
	for i := range specs {
		specs[i] = backlog.TaskSpec{Title: "t", Estimate: tokens(1)}
	}
	specs[0].Body, specs[0].Priority = "what is to be done", 1
	create(t, b, specs...)

	for _, tt := range []struct{ limit, tasks int }{{1, 2}, {15, 0}} { // who asked for it, and its message
		tasks, classes := readByAClaim(t, s, tt.limit)
		require.Equal(t, tt.tasks, tasks)
		require.LessOrEqual(t, classes, 4, "one class has ready tasks")
	}
}

// readByAClaim claims so many tasks, and returns how many rows that read.
func readByAClaim(t *testing.T, s *side, limit int) (tasks, classes int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), pgtest.Admin(s.URL)) // its statistics begin with it
	require.NoError(t, err)
	defer conn.Close(t.Context())
	for _, set := range []string{`enable_seqscan = off`, `enable_bitmapscan = off`, `enable_hashjoin = off`, `enable_mergejoin = off`, `plan_cache_mode = force_generic_plan`} {
		_, err := conn.Exec(t.Context(), "SET "+set)
		require.NoError(t, err)
	}
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SELECT set_config('role', 'spawnmesh_app', true), set_config('spawnmesh.workspace', 'main', true)`)
	require.NoError(t, err)
	var claimed int
	require.NoError(t, tx.QueryRow(t.Context(), `SELECT count(*) FROM claim(gen_random_uuid(), 'main', 'worker', 'card', '{}', NULL, '1 hour', $1, NULL, NULL, 'worker')`, limit).Scan(&claimed))
	require.Equal(t, limit, claimed)
	require.NoError(t, tx.QueryRow(t.Context(), `SELECT sum(read) FILTER (WHERE relname = 'tasks'), sum(read) FILTER (WHERE relname = 'classes')
		FROM (SELECT relname, coalesce(idx_tup_fetch, 0) + coalesce(seq_tup_read, 0) AS read FROM pg_stat_xact_user_tables) AS r`).Scan(&tasks, &classes))
	require.NoError(t, tx.Commit(t.Context()))
	return tasks, classes
}

// A completion lets its dependents go on, and reads none of the others that wait, also
// while nobody has counted those. Nor does it read what others ask.
func TestACompletionReadsItsDependents(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	b := boardOf(t, s, backlog.MainWorkspace)
	create(t, b, backlog.TaskSpec{Key: "first", Title: "t"}, backlog.TaskSpec{Key: "second", Title: "t", DependsOn: []string{"first"}})
	require.NoError(t, s.Exec(`WITH more AS (INSERT INTO tasks (id, class, unmet) SELECT gen_random_uuid(), 0, 1 FROM generate_series(1, 10000) RETURNING id)
		INSERT INTO parked (task, workspace, lane, why) SELECT id, 'main', 'default', 'deps' FROM more`))
	require.NoError(t, s.Exec(`INSERT INTO questions (id, workspace, task, attempt, key, question, options, fallback, data, deadline)
		SELECT gen_random_uuid(), 'main', gen_random_uuid(), 1, 'k', 'q', '{}', '', '', now() + interval '1 day' FROM generate_series(1, 100)`))
	w := &watcher{}
	db, err := store.Open(t.Context(), store.Config{URL: s.URL, Self: s.Self(), Signer: s.Signing, PoolSize: 2, Tracer: w})
	require.NoError(t, err)
	t.Cleanup(db.Close)
	watched, err := backlog.Open(db, nobodyAsks).Workspace(backlog.MainWorkspace, "ann")
	require.NoError(t, err)
	first := claimCards(t, b, nil)[0]

	list := w.during(t, func(ctx context.Context) error {
		_, err := watched.CompleteMany(ctx, []backlog.Fence{first.Fence})
		return err
	})

	require.Equal(t, []string{"second"}, keys(claimCards(t, b, nil)))
	for _, sent := range list {
		plan := explain(t, w.config, sent)
		require.Less(t, plan.Reads("parked"), 10.0, sent.sql)
		require.Less(t, plan.Reads("questions"), 10.0, sent.sql)
	}
}
