package backlog_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/pgtest"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// A large is an instance whose database has a long history and a long queue. What
// tests look for is rare, and the oldest: walking from the newest on finds it last.
type large struct {
	*storetest.Side
	unwatched                     *store.DB
	backlog                       *backlog.Backlog
	main, tiny                    *backlog.Workspace
	ended, open, ready, completed int
	conns                         map[string]string
	ranBefore                     []commands.TaskStanding // of tasks that stand ready
	watch                         *watcher
}

// newLarge fills the database at url: so many tasks that have ended and that are
// open, with their classes, and a tenth as many agents and mirrors with their messages.
func newLarge(t testing.TB, url string, ended, open int, known statistics) *large {
	t.Helper()
	s := storetest.OpenSide(t, url, 1, 2, 4)
	l := &large{Side: s, ended: ended, open: open, conns: map[string]string{}}
	for i, name := range []string{"attic", "shed"} {
		signer := storetest.Signer(t, byte(10+i))
		c, err := s.DB.AddConnection(t.Context(), store.NewConnection{
			Connection: store.Connection{ID: storetest.NewID(), Peer: signing.InstanceIDOf(signer.Public()), Name: name, Authority: store.Commands, State: store.Active, LinkKey: "U" + name},
			Keys:       store.PeerKeys{Identity: signer.Public(), Signing: storetest.Signer(t, byte(20+i)).Public(), Sealing: bytes.Repeat([]byte{byte(i + 1)}, 32)},
			Grant:      storetest.Terms, Actor: "test"})
		require.NoError(t, err)
		l.conns[name] = c.ID
	}
	owner, err := pgx.Connect(t.Context(), pgtest.Admin(url))
	require.NoError(t, err)
	defer owner.Close(context.Background())
	for _, sql := range l.fill(known) {
		began := time.Now()
		_, err := owner.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
		if took := time.Since(began); took > 5*time.Second {
			t.Logf("%s: %.80s", took.Round(time.Second), sql)
		}
	}
	l.ready = l.number(t, owner, "ready")
	l.completed = l.number(t, owner, "completed")
	rows, err := owner.Query(t.Context(), `SELECT t.id::text FROM tasks t JOIN ready r ON r.task = t.id WHERE t.conn IS NOT NULL`)
	require.NoError(t, err)
	l.ranBefore, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (s commands.TaskStanding, err error) {
		s.Attempt, s.State = 1, commands.Queued
		return s, row.Scan(&s.Task)
	})
	require.NoError(t, err)
	require.Len(t, l.ranBefore, 64)
	l.watch = &watcher{}
	db, err := store.Open(t.Context(), store.Config{URL: url, Self: s.Self(), Signer: s.Signing, PoolSize: 2, Tracer: l.watch})
	require.NoError(t, err)
	t.Cleanup(db.Close)
	l.unwatched, l.DB, l.backlog = l.DB, db, backlog.Open(db, nobodyAsks)
	l.main, err = l.backlog.Workspace(backlog.MainWorkspace, "ann")
	require.NoError(t, err)
	l.tiny, err = l.backlog.Workspace("tiny", "ann")
	require.NoError(t, err)
	return l
}

func (l *large) number(t testing.TB, owner *pgx.Conn, what string) (n int) {
	t.Helper()
	require.NoError(t, owner.QueryRow(t.Context(), `SELECT sum(n) FROM counts WHERE workspace = 'main' AND what = $1`, what).Scan(&n))
	return n
}

// id is the id of the nth task; the open ones come after the ended ones.
func (l *large) id(n int) string { return fmt.Sprintf("01900000-0000-7000-8000-%012x", n) }

// order orders a spawn.
func (l *large) order(ctx context.Context, o store.SpawnOrder) error {
	o.Spawn = &commands.Spawn{Task: storetest.NewID(), Runtime: commands.RuntimeNoop, Title: "x"}
	o.Life, o.Actor = time.Hour, "ann"
	list, err := l.DB.OrderSpawns(ctx, []store.SpawnOrder{o})
	if err == nil && list[0].Err != nil {
		err = list[0].Err
	}
	return err
}

// fill returns the statements that fill the database. Of every hundred open tasks
// one is blocked, four wait for another task and five for a time; one in 5,000 of
// the ended was cancelled while it waited. The first forty of the ended failed, and
// half of those after the first hundred are archived. The
// last 64 that stand ready were asked for by shed, who recalls that they ran before.
func (l *large) fill(known statistics) []string {
	classes := min(max(l.ended/100, 100), 10_000)
	parts := []string{
		`INSERT INTO events (seq, at, kind, previous, state, reason, attempt, accepted) SELECT n, now(), 'link', '', 'up', '', 0, false FROM generate_series(1, 50) AS n`,
		`UPDATE event_numbers SET last = 50`,
		`INSERT INTO webhooks (id, name, url, types, states, key, created_by, cursor, failures, failing_since)
			SELECT lpad(n::text, 32, '0')::uuid, 'hook-' || n, 'https://hook', '{}', '{}', gen_random_uuid(), 'ann', 40, 5 * (n % 2), CASE WHEN n % 2 = 1 THEN now() END FROM generate_series(1, 4) AS n`,
		fmt.Sprintf(`INSERT INTO webhook_deliveries (id, webhook, type, body, at, state, next_try_at, ended_at)
			SELECT n::text, lpad((n %% 4 + 1)::text, 32, '0')::uuid, 'link', '{}', now(), CASE WHEN p THEN 'pending' ELSE 'delivered' END, CASE WHEN n %% 8 < 4 THEN now() - interval '1 minute' ELSE now() + interval '1 hour' END, CASE WHEN NOT p THEN now() END
			FROM (SELECT n, n > %[1]d AS p FROM generate_series(1, %[1]d + 3600) AS n) AS x`, l.ended),
		`DO $$ DECLARE t text; BEGIN FOR t IN SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace LOOP
			EXECUTE format('ALTER TABLE %I SET (autovacuum_enabled = off)', t); END LOOP; END $$`,
		`CREATE FUNCTION nth(n bigint) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$ SELECT ('01900000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid $$`,
		`CREATE FUNCTION claim_of(id uuid) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$ SELECT overlay(id::text PLACING '0191' FROM 1 FOR 4)::uuid $$`,
		fmt.Sprintf(`INSERT INTO classes (workspace, lane, kind, capabilities, account, sizes, digest)
			SELECT w, lane, 'card', caps, '', '{}', class_digest(w, lane, 'card', caps, '', NULL, NULL, '{}') FROM (
				SELECT 'main' AS w, 'lane-' || n %% 100 AS lane, ARRAY['cap-' || n] AS caps FROM generate_series(1, %d) AS n UNION ALL SELECT 'main', 'rare', '{}' UNION ALL SELECT 'tiny', 'default', '{}') AS x`, classes),
		fmt.Sprintf(`INSERT INTO tasks (id, class, lane, workspace, title, state, attempt, epoch, started_at, ended_at, created_by, phase, conn)
			SELECT nth(n), CASE WHEN n <= 5 THEN %[2]d + 1 WHEN n <= 8 THEN %[2]d + 2 ELSE 1 + n %% %[2]d END, CASE WHEN n <= 5 THEN 'rare' WHEN n <= 8 THEN 'default' ELSE 'lane-' || (1 + n %% %[2]d) %% 100 END,
				CASE WHEN n BETWEEN 6 AND 8 THEN 'tiny' ELSE 'main' END, 'task ' || n,
				CASE WHEN n <= 40 THEN task_state 'failed' WHEN n %% 5000 = 50 THEN 'cancelled' ELSE 'completed' END, 1, 1, now(), now(), 'bench',
				CASE WHEN n %% 500 = 0 THEN 'late' WHEN n %% 2 = 0 THEN 'build' ELSE '' END, CASE WHEN n %% 10 = 0 THEN (SELECT id FROM connections WHERE peer_name = CASE WHEN n <= 50 THEN 'shed' ELSE 'attic' END) END
			FROM generate_series(1, %[1]d) AS n`, l.ended, classes),
		`UPDATE tasks SET (last_type, last_owner, last_claim, last_claimed_at, last_outcome) = ('initial', 'worker', claim_of(id), now(), CASE state WHEN 'failed' THEN 'failed' ELSE 'succeeded' END) WHERE state <> 'cancelled'`,
		`INSERT INTO ended (task, workspace, lane, phase, state, at, archived_at) SELECT id, workspace, lane, phase, state::text, ended_at, CASE WHEN id > nth(100) AND get_byte(uuid_send(id), 15) % 2 = 1 THEN now() END FROM tasks`,
		`INSERT INTO audit (workspace, actor, action, object, tasks) SELECT workspace, 'worker', 'task.claimed', claim_of(id)::text, ARRAY[id] FROM tasks`,
		`INSERT INTO audit (workspace, actor, action, object) SELECT workspace, 'worker', 'task.' || state, id::text FROM tasks`,
		`INSERT INTO audit (workspace, actor, action, object) SELECT workspace, 'ann', 'task.queued', id::text FROM tasks`,
		`INSERT INTO audit (workspace, actor, action, object) SELECT 'main', 'worker', 'lane.set', 'lane-' || n FROM generate_series(1, greatest(60000, (SELECT count(*) FROM tasks))) AS n`,
		`INSERT INTO audit_leaves (leaf, seq) SELECT -seq, seq FROM audit`, // of before the tree that this begins with
		`UPDATE audit_tree SET seq = (SELECT max(seq) FROM audit)`,
		fmt.Sprintf(`INSERT INTO tasks (id, class, lane, phase, workspace, title, created_by, state, unmet, not_before, attempt, epoch)
			SELECT nth(%[1]d + n), CASE WHEN n <= 5 THEN %[3]d + 1 WHEN n = 6 THEN %[3]d + 2 ELSE 1 + n %% %[3]d END, CASE WHEN n <= 5 THEN 'rare' WHEN n = 6 THEN 'default' ELSE 'lane-' || (1 + n %% %[3]d) %% 100 END, CASE WHEN n <= 5 THEN 'build' ELSE '' END,
				CASE n WHEN 6 THEN 'tiny' ELSE 'main' END, 'task ' || n, 'bench',
				CASE WHEN n %% 100 = 17 THEN task_state 'blocked' ELSE 'queued' END, CASE WHEN n %% 100 BETWEEN 20 AND 23 AND n > 300 THEN 1 ELSE 0 END,
				CASE WHEN n %% 100 BETWEEN 30 AND 34 AND n > 300 THEN now() + interval '1 day' END, 0, 0
			FROM generate_series(1, %[2]d) AS n`, l.ended, l.open, classes),
		fmt.Sprintf(`INSERT INTO leases (task, workspace, lane, attempt, epoch, type, owner, claim, until, sweep_at)
			SELECT id, workspace, lane, 1, 1, 'initial', 'worker-' || row_number() OVER (ORDER BY id), id, now() + interval '1 hour', now() + interval '1 hour' FROM tasks WHERE state = 'queued' AND id > nth(%d + 100) AND id <= nth(%[1]d + 300)`, l.ended),
		`INSERT INTO parked (task, workspace, lane, phase, why) SELECT id, workspace, lane, phase, CASE WHEN unmet > 0 THEN 'deps' ELSE 'blocked' END FROM tasks WHERE state = 'blocked' OR state = 'queued' AND unmet > 0`,
		fmt.Sprintf(`INSERT INTO dependencies (task, dependency, workspace) SELECT id, nth(%d + 7), workspace FROM tasks WHERE state = 'queued' AND unmet > 0`, l.ended),
		`INSERT INTO due (task, workspace, lane, phase, at) SELECT id, workspace, lane, phase, not_before FROM tasks WHERE state = 'queued' AND unmet = 0 AND not_before IS NOT NULL`,
		`INSERT INTO ready (class, rank, seq, task, workspace, lane, phase, expires_at) SELECT class, -priority, seq, id, workspace, lane, phase, CASE WHEN seq % 10 = 0 THEN now() + interval '1 day' ELSE 'infinity' END FROM tasks WHERE state = 'queued' AND unmet = 0 AND not_before IS NULL AND id NOT IN (SELECT task FROM leases)`,
		`INSERT INTO counts (workspace, lane, what, n) SELECT workspace, lane, what, count(*) FROM (SELECT workspace, lane, 'ready' AS what FROM ready UNION ALL SELECT workspace, lane, 'due' FROM due
			UNION ALL SELECT workspace, lane, why FROM parked UNION ALL SELECT workspace, lane, state::text FROM tasks WHERE is_terminal(state)) AS x GROUP BY 1, 2, 3`,
		`INSERT INTO tallies (workspace, lane, what, n) SELECT 'main', 'lane-' || n % 100, 'ready', CASE n % 2 WHEN 0 THEN 1 ELSE -1 END FROM generate_series(1, 1000) AS n`,
		`INSERT INTO agents (id, conn, runtime, over) SELECT id, conn, 'exec', id > nth(100) OR id > nth(20) AND id <= nth(50) FROM tasks WHERE conn IS NOT NULL`,
		`INSERT INTO sessions (task, attempt, pid, boot_id, shim_pid, shim_start, cgroup, state) SELECT id, 1, 1, 'b', 1, 1, '', 'retired' FROM agents`,
		`INSERT INTO progress (task, attempt, n, workspace, said, at) SELECT id, 1, 1, 'main', '{}', now() FROM agents`,
		`INSERT INTO questions (id, workspace, task, attempt, key, question, options, fallback, data, deadline, outcome, answered_at) SELECT id, 'main', id, 1, 'k', 'which?', '{}', '', '', now(), 'answered', now() FROM agents`,
		fmt.Sprintf(`INSERT INTO questions (id, workspace, task, attempt, key, question, options, fallback, data, deadline) SELECT id, workspace, id, 1, 'k', 'which?', '{}', '', '', now() + interval '1 day' FROM tasks WHERE id > nth(%d) AND id <= nth(%[1]d + 40)`, l.ended),
		`INSERT INTO task_checkpoints (task, workspace, attempt, digest, size, session, at) SELECT id, 'main', 1, '', 0, '', now() FROM agents`,
		`INSERT INTO pauses (conn, task, number, paused, reason, actor, times) SELECT conn, id, 1, false, 'enough', 'ann', 1 FROM agents`,
		`INSERT INTO task_bodies (task, workspace, spec) SELECT id, workspace, '{}' FROM tasks WHERE conn IS NOT NULL`,
		`UPDATE tasks SET command = id, command_digest = '', expires_at = now() + interval '1 day' WHERE conn IS NOT NULL`,
		fmt.Sprintf(`INSERT INTO mirrors (task, conn, title, state, command, command_digest, idempotency_key, request_digest, created_by, spec, labels, expires_at, accepted_at, started_at, ended_at)
			SELECT nth(n), c.id, 'agent', CASE WHEN open THEN task_state 'running' ELSE 'completed' END, nth(n), '', 'key-' || n, '', 'bench', '{}', CASE WHEN n <= 70 THEN jsonb '{"app": "rare"}' WHEN n %% 20 = 0 THEN '{"app": "web"}' END, now() + interval '1 day', now(), now(), CASE WHEN NOT open THEN now() END
			FROM (SELECT n * 10 AS n, n * 10 <= 1000 AND n * 10 NOT IN (30, 40, 50) AS open FROM generate_series(1, %d) AS n) AS x JOIN connections c ON c.peer_name = CASE WHEN n <= 50 THEN 'shed' ELSE 'attic' END`, l.ended/10),
		`INSERT INTO inquiries (conn, id, task, attempt, seq, question, options, fallback, data, asked_at, deadline, received_at, outcome, answered_at)
			SELECT conn, task, task, 1, 1, 'which?', '{}', '', '', now(), now(), now() + CASE WHEN ended_at IS NOT NULL THEN interval '1 second' ELSE '0' END, CASE WHEN ended_at IS NOT NULL AND task > nth(1600) THEN 'answered' END, CASE WHEN ended_at IS NOT NULL AND task > nth(1600) THEN now() END FROM mirrors`,
		`INSERT INTO kills (conn, command, digest, task, reason, grace, exp, answered_at, tombstone)
			SELECT conn, gen_random_uuid(), '', id, 'enough', '0', now() - interval '2 days', now(), false FROM agents, generate_series(1, 5)`,
		`INSERT INTO outbox (id, conn, seq, queue, kind, digest, task, exp, envelope) SELECT task, conn, row_number() OVER (PARTITION BY conn ORDER BY task), 'run', 'agent.spawn', '', task, now() + interval '1 day', 'x' FROM mirrors`,
		`UPDATE confirmed SET numbers = (SELECT coalesce(range_agg(int8range(seq, seq + 1)), '{}') FROM outbox o JOIN mirrors m USING (task) WHERE o.conn = confirmed.conn AND m.ended_at IS NOT NULL)`,
		`INSERT INTO inbox (conn, id, seq, digest, kind, re, task, exp, envelope) SELECT m.conn, gen_random_uuid(), row_number() OVER (ORDER BY m.task, n), '', 'agent.started', m.command, m.task, now() + interval '1 day', 'x'
			FROM mirrors m, generate_series(1, 3) AS n`,
		`INSERT INTO logs (task, conn, tail) SELECT task, conn, 1 FROM mirrors`,
		`INSERT INTO log_segments (task, base, conn, bytes) SELECT task, base, conn, 1 FROM logs, generate_series(0, 2) AS base`,
		`DELETE FROM log_sums`,
		`INSERT INTO log_sums SELECT conn, 4096 * count(*) FROM log_segments GROUP BY 1`,
		`INSERT INTO budgets (workspace, name, scope, dimension, hard, rolling) VALUES ('main', 'month', 'workspace', 'usd', 9e15, interval '30 days')`,
		`INSERT INTO charges (budget, workspace, amount, at) SELECT b.id, 'main', 1, now() - n * interval '1 minute' FROM budgets b, generate_series(1, least(20000, (SELECT count(*) FROM tasks))) AS n`,
		`INSERT INTO quotas (workspace, name, scope, per_window, win) VALUES ('main', 'hour', 'workspace', 1000000, interval '1 hour')`,
		`INSERT INTO quota_uses (quota, task, attempt, workspace, at) SELECT q.id, t.id, 1, 'main', now() - interval '2 hours' FROM quotas q, (SELECT id FROM tasks ORDER BY id LIMIT 20000) AS t`,
		`UPDATE tasks SET conn = (SELECT id FROM connections WHERE peer_name = 'shed') WHERE id IN (SELECT task FROM ready ORDER BY task DESC LIMIT 64)`,
		`UPDATE sequences s SET last = coalesce((SELECT max(seq) FROM outbox WHERE conn = s.conn), 0), stored = coalesce((SELECT int8multirange(int8range(1, max(seq) + 1)) FROM inbox WHERE conn = s.conn), '{}')`,
		`SELECT setval(pg_get_serial_sequence('tasks', 'seq'), max(seq)) FROM tasks`,
	}
	if known != nothing {
		parts = append(slices.Insert(parts, 1, dropIndexes...), makeIndexes)
	}
	if known == everything {
		parts = append(parts, `VACUUM ANALYZE`)
	}
	return parts
}

// statistics are what the planner knows of the tables of a large database.
type statistics int

const (
	nothing    statistics = iota
	sizes                 // as where rows were loaded before the indexes were made, and nothing was analyzed yet
	everything            // by ANALYZE
)

// Rows first, indexes then, and foreign keys not at all: of ten million rows that is a
// fraction of the time.
var dropIndexes = []string{
	`SET session_replication_role = replica`,
	`CREATE TEMP TABLE indexes AS SELECT indexrelid::regclass::text AS name, pg_get_indexdef(indexrelid) AS made FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid
		WHERE c.relnamespace = 'public'::regnamespace AND NOT i.indisunique ORDER BY indexrelid`, // of two that cost the same the planner takes the older one
	`DO $$ DECLARE n text; BEGIN FOR n IN SELECT name FROM indexes LOOP EXECUTE 'DROP INDEX ' || n; END LOOP; END $$`,
}

const makeIndexes = `DO $$ DECLARE sql text; BEGIN FOR sql IN SELECT made FROM indexes LOOP EXECUTE sql; END LOOP; END $$`
