package store_test

import (
	"context"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/pgtest"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store"
)

func prune(t *testing.T, s *storetest.Side) map[string]int64 {
	t.Helper()
	removed, err := s.DB.Prune(t.Context(), 0, time.Minute)
	require.NoError(t, err)
	return removed
}

func TestAMessageIsKnownUntilItCannotComeAgain(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	p.Order(t, nil)
	envelopes := p.Hub.Due(t)
	take := func() string {
		batch := p.Spoke.Read(t, envelopes...)
		_, err := p.Spoke.DB.TakeIn(t.Context(), p.Spoke.Conn.ID, 20, batch, nothing)
		require.NoError(t, err)
		return string(batch[0].Code)
	}
	require.Empty(t, take())
	require.NoError(t, p.Spoke.DB.SetRetention(t.Context(), "inbox", 2*time.Hour, "ann"))

	for age, known := range map[string]bool{"0 s": true, "119 min": true, "121 min": false} {
		require.NoError(t, p.Spoke.Exec(`UPDATE inbox SET exp = now() - $1::text::interval`, age))
		prune(t, p.Spoke)
		require.Equal(t, known, p.Spoke.Count(t, `SELECT count(*) FROM inbox`) == 1, "%s after its expiry", age)
		take()
	}
	tooShort := p.Spoke.DB.SetRetention(t.Context(), "inbox", time.Minute, "ann")
	require.Equal(t, commands.Validation, commands.CodeOf(tooShort), "its margin is not to be had")
}

func TestOnlyWhatIsConfirmedLeavesTheOutbox(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	p.Order(t, nil)
	p.Order(t, nil)
	require.NoError(t, p.Hub.Exec(`UPDATE outbox SET exp = '2020-01-01', created_at = '2020-01-01'`))
	confirmLongAgo(t, p.Hub, "{[1,1]}")

	removed := prune(t, p.Hub)

	require.EqualValues(t, 1, removed["outbox"])
	require.Equal(t, 1, p.Hub.Count(t, `SELECT count(*) FROM open_outbox`))
}

// confirmLongAgo has a set of messages confirmed, long ago.
func confirmLongAgo(t *testing.T, s *storetest.Side, set string) {
	t.Helper()
	require.NoError(t, s.Exec(`UPDATE confirmed SET numbers = $1`, set))
	require.NoError(t, s.Exec(`INSERT INTO confirmed_before (conn, at, numbers) SELECT conn, '2020-01-01', numbers FROM confirmed`))
}

// The sides compare the newest messages that can still be accepted.
func TestTheNewestConfirmedMessagesStay(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	require.NoError(t, p.Hub.Exec(`INSERT INTO outbox (id, conn, seq, queue, kind, digest, exp, created_at, envelope)
		SELECT gen_random_uuid(), $1, n, 'run', 'agent.spawn', '', now() + interval '1 day', now() - interval '30 days', '' FROM generate_series(1, 9000) AS n`, p.Hub.Conn.ID))
	confirmLongAgo(t, p.Hub, "{[1,9000]}")

	removed := prune(t, p.Hub)

	require.EqualValues(t, 7000, removed["outbox"])
	require.Equal(t, 7001, p.Hub.Count(t, `SELECT min(seq) FROM outbox`))
}

// Pruning comes every minute and finds mostly nothing.
func TestPruningDoesNotReadTheOutboxOfThePeriod(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	require.NoError(t, p.Hub.Exec(`INSERT INTO outbox (id, conn, seq, queue, kind, digest, exp, envelope)
		SELECT gen_random_uuid(), $1, n, 'run', 'agent.spawn', '', now() + interval '1 day', '' FROM generate_series(1, 9000) AS n`, p.Hub.Conn.ID))
	confirmLongAgo(t, p.Hub, "{[1,9000]}")

	require.Less(t, blocksOfPruning(t, p.Hub, "outbox"), 50)
}

// Where the first of them is young, none of the others is looked at.
func TestPruningDoesNotReadTheFeedAndTheAuditOfThePeriod(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	require.NoError(t, s.Exec(`INSERT INTO events (seq, at, kind, previous, state, reason, attempt, accepted) SELECT n, now(), 'link', '', 'up', '', 0, false FROM generate_series(1, 9000) AS n`))
	require.NoError(t, s.Exec(`INSERT INTO audit (actor, action) SELECT 'ann', 'young' FROM generate_series(1, 9000)`))

	require.Less(t, blocksOfPruning(t, s, "events"), 100)
	require.Less(t, blocksOfPruning(t, s, "audit"), 40)
}

// A clock that was ahead for a while leaves events of the future in front of old ones, which go with them.
func TestEventsOfAClockThatWasAheadStopNoPruning(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	require.NoError(t, s.Exec(`INSERT INTO events (seq, at, kind, previous, state, reason, attempt, accepted)
		SELECT n, now() + CASE WHEN n <= 6000 THEN interval '2 years' WHEN n <= 12000 THEN interval '-200 days' ELSE '0' END, 'link', '', 'up', '', 0, false FROM generate_series(1, 12003) AS n`))

	require.EqualValues(t, 12000, prune(t, s)["events"])
	require.Equal(t, 12001, s.Count(t, `SELECT min(seq) FROM events`))
}

// What is removed in many batches is not read anew for each of them.
func TestABatchOfPruningReadsWhatItRemoves(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	require.NoError(t, p.Hub.Exec(`INSERT INTO outbox (id, conn, seq, queue, kind, digest, exp, created_at, envelope)
		SELECT gen_random_uuid(), $1, n, 'run', 'agent.spawn', '', now() + (n - 10000) * interval '1 day', now() - interval '8 days', '' FROM generate_series(1, 50000) AS n`, p.Hub.Conn.ID))
	confirmLongAgo(t, p.Hub, "{[1,50000]}")
	var removed, read int

	require.NoError(t, p.Hub.DB.Tx(t.Context(), "pruning the outbox", func(ctx context.Context, tx *store.Tx) error {
		require.NoError(t, tx.QueryRow(ctx, store.PruneForTest("outbox"), 7*24*time.Hour, 5000).Scan(&removed))
		return tx.QueryRow(ctx, `SELECT idx_tup_fetch + seq_tup_read FROM pg_stat_xact_user_tables WHERE relname = 'outbox'`).Scan(&read)
	}))

	require.Equal(t, 5000, removed)
	require.Less(t, read, 15000, "rows")
}

// By a clock that was set back something was confirmed long ago. It stays all the same, behind
// a message that came before.
func TestWhatIsBehindANewMessageIsNotPruned(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	question(t, p.Hub, 9)
	require.NoError(t, p.Hub.Exec(`UPDATE outbox SET exp = '2020-01-02', created_at = CASE seq WHEN 4 THEN now() - interval '1 day' ELSE '2020-01-01' END`))
	confirmLongAgo(t, p.Hub, "{[1,9]}")

	removed := prune(t, p.Hub)

	require.EqualValues(t, 3, removed["outbox"])
	require.Equal(t, 4, p.Hub.Count(t, `SELECT min(seq) FROM outbox`))
}

// blocksOfPruning says how many blocks pruning looks at that removes nothing.
func blocksOfPruning(t *testing.T, s *storetest.Side, kind string) (read int) {
	t.Helper()
	var plan string
	require.NoError(t, s.DB.Tx(t.Context(), "pruning "+kind, func(ctx context.Context, tx *store.Tx) error {
		var n int64
		require.NoError(t, tx.QueryRow(ctx, store.PruneForTest(kind), 7*24*time.Hour, 5000).Scan(&n)) // it reads the catalogue
		rows, err := tx.Query(ctx, `EXPLAIN (ANALYZE, BUFFERS, COSTS OFF) `+store.PruneForTest(kind), 7*24*time.Hour, 5000)
		require.NoError(t, err)
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		plan = strings.Join(lines, "\n")
		return err
	}))
	for _, n := range regexp.MustCompile(`(?:hit|read)=(\d+)`).FindAllStringSubmatch(strings.SplitN(plan, "Planning", 2)[0], -1) {
		blocks, err := strconv.Atoi(n[1])
		require.NoError(t, err)
		read += blocks
	}
	require.Positive(t, read, plan)
	return read
}

func TestOldMirrorsGo(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	open, recent, old := p.Order(t, nil), p.Order(t, nil), p.Order(t, nil)
	require.NoError(t, p.Hub.Exec(`UPDATE mirrors SET state = 'completed', ended_at = now() - CASE task WHEN $1 THEN interval '29 days' ELSE interval '31 days' END WHERE task <> $2`, recent, open))

	removed := prune(t, p.Hub)

	require.EqualValues(t, 1, removed["mirrors"])
	require.Zero(t, p.Hub.Count(t, `SELECT count(*) FROM mirrors WHERE task = $1`, old))
}

func TestTheAuditIsPrunedByItsOwnRule(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	require.NoError(t, s.DB.Audit(t.Context(), store.AuditRow{Actor: "ann", Action: "first"}, store.AuditRow{Actor: "ann", Action: "second"}))
	asOwner(t, s, `ALTER TABLE audit DISABLE TRIGGER audit_append_only; UPDATE audit SET at = now() - interval '200 days' WHERE action = 'first'; ALTER TABLE audit ENABLE TRIGGER audit_append_only`)

	deleting := s.Exec(`DELETE FROM audit`)
	disguised := s.Exec(`WITH s AS (SELECT set_config('spawnmesh.pruning_audit', 'on', true)) DELETE FROM audit USING s`)
	tooMuch := s.Exec(`SELECT prune_audit(interval '6 days', 10)`)
	removed := prune(t, s)

	require.ErrorContains(t, deleting, "permission denied")
	require.ErrorContains(t, disguised, "permission denied")
	require.ErrorContains(t, tooMuch, "7 days at least")
	require.EqualValues(t, 1, removed["audit"])
	require.Zero(t, s.Count(t, `SELECT count(*) FROM audit WHERE action = 'first'`))
	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM audit WHERE action = 'second'`))
	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM audit WHERE action = 'audit.pruned'`), "the audit says that it was pruned")
}

// A clock that was ahead for a while leaves rows of the future in front of old ones.
func TestAuditRowsOfAClockThatWasAheadStopNoPruning(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	require.NoError(t, s.Exec(`INSERT INTO audit (at, actor, action) SELECT now() + interval '2 years', 'ann', 'ahead' FROM generate_series(1, 6000)`))
	require.NoError(t, s.Exec(`INSERT INTO audit (at, actor, action) SELECT now() - interval '200 days', 'ann', 'old' FROM generate_series(1, 6000)`))
	require.NoError(t, s.Exec(`INSERT INTO audit (actor, action) VALUES ('ann', 'young')`))
	require.NoError(t, s.Exec(`INSERT INTO audit (at, actor, action) VALUES (now() + interval '2 years', 'ann', 'ahead of nothing old'), (now() - interval '200 days', 'ann', 'behind a young one')`))

	prune(t, s)

	require.Zero(t, s.Count(t, `SELECT count(*) FROM audit WHERE action IN ('ahead', 'old')`))
	require.Equal(t, 2, s.Count(t, `SELECT count(*) FROM audit WHERE action IN ('young', 'ahead of nothing old')`))
}

func TestATurnOfAClockThatWasAheadStopsNoPruning(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	prune(t, s)
	require.NoError(t, s.Exec(`UPDATE retention SET pruned_at = now() + interval '2 years'`))
	require.NoError(t, s.Exec(`UPDATE retention SET bytes = -1, bytes_at = now() + interval '2 years' WHERE kind <> ''`))

	_, err := s.DB.Prune(t.Context(), time.Hour, time.Minute)

	require.NoError(t, err)
	require.Zero(t, s.Count(t, `SELECT count(*) FROM retention WHERE pruned_at > now() + interval '1 year' OR bytes_at > now() + interval '1 year' OR bytes < 0`))
	none, err := s.DB.Prune(t.Context(), time.Hour, time.Minute)
	require.NoError(t, err)
	require.Empty(t, none, "the turn is taken for an hour")
}

func TestPruningGoesOnUntilItsTimeIsOver(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	fill := func() {
		require.NoError(t, s.Exec(`INSERT INTO inbox (conn, id, seq, digest, kind, exp, envelope) SELECT gen_random_uuid(), gen_random_uuid(), n, '', '', '2020-01-01', '' FROM generate_series(1, 12000) AS n`))
	}
	fill()

	all := prune(t, s)
	fill()
	some, err := s.DB.Prune(t.Context(), 0, 0)
	require.NoError(t, err)
	kept, err := s.DB.Retention(t.Context())
	require.NoError(t, err)
	none, err := s.DB.Prune(t.Context(), time.Hour, time.Minute)
	require.NoError(t, err)

	require.EqualValues(t, 12000, all["inbox"])
	require.EqualValues(t, 5000, some["inbox"], "one batch, and the time is over")
	require.Equal(t, "inbox", kept[0].Kind)
	require.True(t, kept[0].Behind)
	require.Positive(t, kept[0].Bytes)
	require.Empty(t, none, "somebody pruned a moment ago")
}

func TestEveryKindCanBeKeptForAnotherTime(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	kept := slices.DeleteFunc(slices.Clone(store.Kinds), func(k store.Kind) bool { return k.AtOnce || k.SetBy != "" })
	for _, k := range kept {
		require.NoError(t, s.DB.SetRetention(t.Context(), k.Name, 400*24*time.Hour, "ann"), k.Name)
		require.Equal(t, commands.Validation, commands.CodeOf(s.DB.SetRetention(t.Context(), k.Name, time.Second, "ann")), k.Name)
	}

	list, err := s.DB.Retention(t.Context())

	require.NoError(t, err)
	for _, k := range list {
		if k.SetBy != "" {
			require.Equal(t, commands.Validation, commands.CodeOf(s.DB.SetRetention(t.Context(), k.Kind, 0, "ann")), k.Kind)
			continue
		}
		if k.AtOnce {
			require.Equal(t, commands.Validation, commands.CodeOf(s.DB.SetRetention(t.Context(), k.Kind, 400*24*time.Hour, "ann")), k.Kind)
			require.NoError(t, s.DB.SetRetention(t.Context(), k.Kind, 0, "ann"), k.Kind)
			continue
		}
		require.Equal(t, 400*24*time.Hour, k.Keep, k.Kind)
	}
	require.Equal(t, commands.NotFound, commands.CodeOf(s.DB.SetRetention(t.Context(), "dreams", time.Hour, "ann")))
	require.NoError(t, s.DB.SetRetention(t.Context(), "tasks", 0, "ann"))
	require.Equal(t, len(store.Kinds), s.Count(t, `SELECT count(*) FROM audit WHERE action = 'retention.set'`))
}

func nothing(context.Context, *store.Tx, store.Standing, []*store.Incoming) error { return nil }

// asOwner runs statements as the owner of the tables.
func asOwner(t *testing.T, s *storetest.Side, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), pgtest.Admin(s.URL))
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), sql)
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))
}

// Of each table of a kind, a batch takes as many rows as it may, and what somebody
// holds stays for the next time.
func TestPruningTakesBatchesAndWaitsForNobody(t *testing.T) {
	t.Parallel()
	for kind, tt := range map[string]struct {
		tables []string
		three  string // fills them with three rows each that are too old
	}{
		"budget-sums": {[]string{"budget_shards", "charges"}, `WITH shards AS (INSERT INTO budget_shards (budget, shard, workspace) SELECT 900 + n, n, 'main' FROM generate_series(1, 3) AS n)
			INSERT INTO charges (budget, workspace, amount) SELECT 900 + n % 2, 'main', 1 FROM generate_series(1, 3) AS n`},
		"connections": {[]string{"heartbeats", "serving"}, `WITH beats AS (INSERT INTO heartbeats (conn, at, interval_ms, offset_ms, body) SELECT id, now(), 1, 0, '{}' FROM connections)
			INSERT INTO serving (conn, process, until) SELECT id, 'p', now() FROM connections`},
		"quota-uses": {[]string{"quota_uses"}, `WITH q AS (INSERT INTO quotas (workspace, name, scope, concurrent) VALUES ('main', 'q', 'workspace', 1) RETURNING id)
			INSERT INTO quota_uses (quota, task, attempt, workspace, at) SELECT id, gen_random_uuid(), 1, 'main', now() - interval '9 days' FROM q, generate_series(1, 3)`},
		"counts": {[]string{"counts"}, `INSERT INTO counts (workspace, lane, what, n) SELECT 'main', 'l' || n, 'ready', 0 FROM generate_series(1, 3) AS n`},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := storetest.NewSide(t, 1, 2)
			for range 3 {
				s.Meet(t, store.Obeys)
				require.NoError(t, s.Exec(`UPDATE connections SET state = 'revoked', state_at = now() - interval '9 days'`))
			}
			asOwner(t, s, tt.three)
			left := func() (n int) {
				for _, table := range tt.tables {
					n += s.Count(t, `SELECT count(*) FROM `+table)
				}
				return n
			}
			require.Equal(t, 3*len(tt.tables), left())
			var first int
			require.NoError(t, s.DB.Tx(t.Context(), "pruning one of each", func(ctx context.Context, tx *store.Tx) error {
				return tx.QueryRow(ctx, store.PruneForTest(kind), 24*time.Hour, 1).Scan(&first)
			}))
			holder, err := pgx.Connect(t.Context(), pgtest.Admin(s.URL))
			require.NoError(t, err)
			t.Cleanup(func() { _ = holder.Close(context.Background()) })
			_, err = holder.Exec(t.Context(), `BEGIN; SET LOCAL role = spawnmesh_engine`)
			require.NoError(t, err)
			for _, table := range tt.tables {
				_, err = holder.Exec(t.Context(), `SELECT FROM `+table+` LIMIT 1 FOR UPDATE`)
				require.NoError(t, err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()

			second, err := s.DB.Prune(ctx, 0, time.Minute)

			require.NoError(t, err, "somebody holds a row")
			require.Equal(t, len(tt.tables), first, "a batch of one takes one of each table")
			require.EqualValues(t, len(tt.tables), second[kind])
			require.Equal(t, len(tt.tables), left())
			_, err = holder.Exec(t.Context(), `ROLLBACK`)
			require.NoError(t, err)
			require.EqualValues(t, len(tt.tables), prune(t, s)[kind])
			require.Zero(t, left())
		})
	}
}

// Pruning holds nobody of whom it removes nothing.
func TestPruningLetsOthersConfirm(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	require.NoError(t, p.Hub.Exec(`INSERT INTO outbox (id, conn, seq, queue, kind, digest, exp, created_at, envelope)
		SELECT gen_random_uuid(), $1, n, 'run', 'agent.spawn', '', now() + interval '20 days', now() - interval '8 days', '' FROM generate_series(1, 5) AS n`, p.Hub.Conn.ID))
	require.NoError(t, p.Hub.Exec(`UPDATE sequences SET last = 9`))
	require.NoError(t, p.Hub.Exec(`UPDATE confirmed SET numbers = '{[1,5]}'`))
	require.NoError(t, p.Hub.Exec(`INSERT INTO confirmed_before (conn, at, numbers) SELECT conn, now() - interval '8 days', numbers FROM confirmed`))
	pruning, err := pgx.Connect(t.Context(), pgtest.Admin(p.Hub.URL))
	require.NoError(t, err)
	defer pruning.Close(context.Background())
	tx, err := pruning.Begin(t.Context())
	require.NoError(t, err)
	var n int
	require.NoError(t, tx.QueryRow(t.Context(), store.PruneForTest("outbox"), 7*24*time.Hour, 5000).Scan(&n))
	require.Zero(t, n, "their answers live for longer")
	ctx, done := context.WithTimeout(t.Context(), 20*time.Second)
	defer done()

	require.NoError(t, p.Hub.DB.Confirm(ctx, p.Hub.Peer, commands.Numbers{Through: 7}))

	require.NoError(t, tx.Rollback(t.Context()))
	require.NoError(t, p.Hub.Exec(`UPDATE outbox SET exp = now() - interval '2 days'`))
	require.NoError(t, pruning.QueryRow(t.Context(), store.PruneForTest("outbox"), 7*24*time.Hour, 3).Scan(&n))
	require.Equal(t, 3, n)
}

// What is opened again while pruning notes what is confirmed is in no note.
func TestWhatIsOpenedAgainIsInNoNote(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	require.NoError(t, p.Hub.Exec(`UPDATE confirmed SET numbers = '{[1,9]}'`))
	require.NoError(t, p.Hub.Exec(`UPDATE sequences SET last = 9`))
	require.NoError(t, p.Hub.Exec(`INSERT INTO outbox (id, conn, seq, queue, kind, digest, exp, envelope)
		SELECT gen_random_uuid(), $1, n, 'ctl', 'agent.kill', '', now() + interval '1 day', '' FROM generate_series(1, 9) AS n`, p.Hub.Conn.ID))
	noting, err := pgx.Connect(t.Context(), pgtest.Admin(p.Hub.URL))
	require.NoError(t, err)
	defer noting.Close(context.Background())
	tx, err := noting.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SELECT note_confirmed('7 days')`)
	require.NoError(t, err)
	compared := make(chan error, 1)
	reopened := 0

	go func() {
		a, err := p.Hub.DB.Compare(context.Background(), p.Hub.Peer, commands.Numbering{Stored: commands.Numbers{Through: 4}}, -1, 10)
		reopened = a.Reopened
		compared <- err
	}()
	eye, err := pgx.Connect(t.Context(), pgtest.Admin(p.Hub.URL))
	require.NoError(t, err)
	defer eye.Close(context.Background())
	for waits := false; !waits && len(compared) == 0; {
		require.NoError(t, eye.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`).Scan(&waits))
	}
	require.NoError(t, tx.Commit(t.Context()))

	require.NoError(t, <-compared)
	require.Equal(t, 5, reopened)
	require.Zero(t, p.Hub.Count(t, `SELECT count(*) FROM confirmed_before b JOIN confirmed c USING (conn) WHERE NOT b.numbers <@ c.numbers`))
}
