package store_test

import (
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/pgtest"
	"github.com/spawnmesh/spawnmesh/store"
)

// A database of the first schema with a task in every place it knew.
const schema1Rows = `
	CREATE TABLE schema_version (version int4 NOT NULL);
	INSERT INTO schema_version VALUES (1);
	INSERT INTO requirement_sets (capabilities) VALUES ('{gpu}');
	INSERT INTO tasks (id, title, priority, state, requires, attempt, epoch, ended_at) VALUES
		('00000000-0000-4000-8000-000000000001', 'ready', 7, 'queued', 1, 0, 0, NULL),
		('00000000-0000-4000-8000-000000000002', 'due', 0, 'queued', 0, 1, 1, NULL),
		('00000000-0000-4000-8000-000000000003', 'held', 0, 'claimed', 0, 2, 2, NULL),
		('00000000-0000-4000-8000-000000000004', 'done', 0, 'completed', 0, 1, 1, now());
	INSERT INTO task_bodies (task, spec) SELECT id, jsonb_build_object('task', id, 'runtime', 'noop') FROM tasks;
	INSERT INTO agents (id, runtime) SELECT id, 'noop' FROM tasks;
	INSERT INTO ready (workspace, lane, requires, rank, task, expires_at) VALUES ('main', 'default', 1, -7, '00000000-0000-4000-8000-000000000001', 'infinity');
	INSERT INTO due (at, task) VALUES (now() + interval '1 hour', '00000000-0000-4000-8000-000000000002');
	INSERT INTO attempts (task, number, epoch, type, owner, claim, ended_at, outcome) VALUES
		('00000000-0000-4000-8000-000000000002', 1, 1, 'initial', 'w', gen_random_uuid(), now(), 'failed'),
		('00000000-0000-4000-8000-000000000003', 1, 1, 'initial', 'w', gen_random_uuid(), now(), 'interrupted'),
		('00000000-0000-4000-8000-000000000003', 2, 2, 'reclaim', 'w', gen_random_uuid(), NULL, NULL),
		('00000000-0000-4000-8000-000000000004', 1, 1, 'initial', 'w', gen_random_uuid(), now(), 'succeeded');
	INSERT INTO leases (task, attempt, epoch, owner, until) VALUES ('00000000-0000-4000-8000-000000000003', 2, 2, 'w', now() + interval '1 hour');`

// What was there before an upgrade goes on after it.
func TestUpgradeFromTheFirstSchema(t *testing.T) {
	t.Parallel()
	s := &side{url: pgtest.URL(t), id: signer(t, 1), sign: signer(t, 2)}
	first, err := os.ReadFile("migrations/001_init.sql")
	require.NoError(t, err)
	conn, err := pgx.Connect(t.Context(), s.url)
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), string(first)+schema1Rows)
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))

	s.db, err = store.Open(t.Context(), store.Config{URL: s.url, Self: s.self(), Signer: s.sign})
	require.NoError(t, err)
	t.Cleanup(s.db.Close)

	b := boardOf(t, s, "main")
	stats, err := b.Stats(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[commands.State]int64{"queued": 2, "claimed": 1, "completed": 1}, stats.States)
	claimed, err := s.db.Claim(t.Context(), store.ClaimTerms{Owner: "w", Capabilities: []string{"gpu"}, Limit: 10, Lease: time.Minute})
	require.NoError(t, err)
	require.Len(t, claimed, 1)
	require.Equal(t, []any{"ready", 7, commands.RuntimeNoop}, []any{claimed[0].Title, claimed[0].Priority, claimed[0].Spec.Runtime})
	open, err := s.db.OpenAttempts(t.Context(), "w")
	require.NoError(t, err)
	require.Len(t, open, 2)
	held, err := s.db.Record(t.Context(), []store.Progress{
		{Start: &store.Start{Fence: store.Fence{Task: "00000000-0000-4000-8000-000000000003", Attempt: 2, Epoch: 2}, Pid: 1, BootID: "b"}},
		{End: &store.End{Fence: store.Fence{Task: "00000000-0000-4000-8000-000000000003", Attempt: 2, Epoch: 2}, Outcome: commands.Succeeded}}})
	require.NoError(t, err)
	require.Equal(t, []bool{true, true}, held)
	require.Equal(t, 5, rows(t, s, `SELECT count(*) FROM attempts`))
	require.Equal(t, 1, rows(t, s, `SELECT count(*) FROM due WHERE workspace = 'main'`))
}
