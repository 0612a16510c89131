package store_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/pgtest"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store"
)

// A message that the peer has not stored stays open, whatever comes behind it.
func TestNothingIsConfirmedPastAGap(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	question(t, p.Hub, 6)

	require.NoError(t, p.Hub.DB.Confirm(t.Context(), p.Hub.Peer, commands.Numbers{Through: 5, Gaps: []commands.Range{{From: 2, To: 3}}}))

	require.Equal(t, []int64{2, 3, 6}, numbers(t, p.Hub.DB.NewCursor(p.Hub.Conn.ID)))
	counts, err := p.Hub.DB.OutboxCounts(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[string]int{p.Hub.Conn.ID: 3}, counts)
}

// A number that was not given yet is not confirmed: its message would never be sent.
func TestANumberThatWasNotGivenIsNotConfirmed(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	question(t, p.Hub, 2)

	err := p.Hub.DB.Confirm(t.Context(), p.Hub.Peer, commands.Numbers{Through: 3})

	require.ErrorIs(t, err, store.ErrRestored)
	question(t, p.Hub, 1)
	require.Equal(t, []int64{1, 2, 3}, numbers(t, p.Hub.DB.NewCursor(p.Hub.Conn.ID)))
}

// A peer that confirms every other message of many does not make the set grow without bound. What
// closes gaps is confirmed all the same, by a note and by answers, and counts; what is not stays open.
func TestTheSetOfAHostilePeerIsBounded(t *testing.T) {
	t.Parallel()
	const most, low, first = 21 * commands.MaxMissing, 20*commands.MaxMissing - 1, 40_000 // ranges, those that are there, and the number before what is open
	p := storetest.NewPair(t)
	question(t, p.Hub, 1)
	require.NoError(t, p.Hub.Exec(`INSERT INTO outbox (id, conn, seq, queue, kind, digest, exp, envelope)
		SELECT gen_random_uuid(), $1, n, 'ctl', 'agent.status', '', now() + interval '1 day', '' FROM generate_series($2::int + 1, $2 + 9000) AS n`, p.Hub.Conn.ID, first))
	require.NoError(t, p.Hub.Exec(`DELETE FROM outbox WHERE seq = 1`))
	require.NoError(t, p.Hub.Exec(`UPDATE sequences SET last = $1`, first+9000))
	require.NoError(t, p.Hub.Exec(`UPDATE confirmed SET numbers = (SELECT range_agg(int8range(2 * n, 2 * n + 1)) FROM generate_series(1, $1::int) AS n)`, low))
	ranges := func() int { return p.Hub.Count(t, `SELECT count(*) FROM confirmed, unnest(numbers)`) }
	open := func() int { return p.Hub.Count(t, `SELECT count(*) FROM open_outbox`) }
	evens := func(from, to int64) (n commands.Numbers) {
		n.Gaps = []commands.Range{{From: 1, To: first + from - 1}}
		for seq := from; seq < to; seq += 2 {
			n.Gaps = append(n.Gaps, commands.Range{From: first + seq + 1, To: first + seq + 1})
		}
		n.Through = first + to
		return n
	}
	confirm := func(n commands.Numbers) { require.NoError(t, p.Hub.DB.Confirm(t.Context(), p.Hub.Peer, n)) }

	confirm(evens(4, 1802))
	confirm(evens(1804, 2402))
	require.Equal(t, most, ranges())
	require.Equal(t, 9000-(most-low), open(), "the lowest were taken")
	a, err := p.Hub.DB.Compare(t.Context(), p.Hub.Peer, commands.Numbering{Stored: evens(4, 3002), Digest: &commands.History{}}, -1, 20)
	require.NoError(t, err)
	require.Zero(t, a.Confirmed, "none of them fits")
	require.Equal(t, 9000-(most-low), open())

	confirm(commands.Numbers{Through: first + 5, Gaps: []commands.Range{{From: 1, To: first + 4}}})
	require.Equal(t, most-1, ranges(), "it closes a gap")
	confirm(commands.Numbers{Through: first + 2404, Gaps: []commands.Range{{From: 1, To: first + 2401}}})
	require.Equal(t, most, ranges(), "there is room for one more")
	require.Equal(t, 9000-(most-low)-4, open())
	require.NoError(t, p.Hub.DB.Tx(t.Context(), "taking answers", func(ctx context.Context, tx *store.Tx) error {
		return store.CloseOutForTest(ctx, tx, p.Hub.Conn.ID, ids(t, p.Hub, first+7, first+5000, first+6000), []string{"", "", ""})
	}))
	require.Equal(t, most-1, ranges(), "one answer closes a gap")
	require.Equal(t, 9000-(most-low)-5, open(), "and the others have no room")
}

// ids are those of the messages with some numbers.
func ids(t *testing.T, s *storetest.Side, numbers ...int64) (list []string) {
	t.Helper()
	require.NoError(t, s.DB.Read(t.Context(), "reading ids", func(ctx context.Context, conn *pgxpool.Conn) error {
		return conn.QueryRow(ctx, `SELECT array_agg(id::text) FROM outbox WHERE seq = ANY ($1)`, numbers).Scan(&list)
	}))
	return list
}

func TestAConnectionThatHasEndedHasNothingOpen(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	question(t, p.Hub, 2)

	_, err := p.Hub.DB.SetConnectionState(t.Context(), p.Hub.Conn.ID, store.Revoked, "gone", "test", nil)

	require.NoError(t, err)
	require.Empty(t, numbers(t, p.Hub.DB.NewCursor(p.Hub.Conn.ID)))
	require.Zero(t, p.Hub.Count(t, `SELECT count(*) FROM open_outbox`))
}

// A message that a peer has lost and is sent again is kept as if it had never been confirmed.
func TestWhatIsOpenAgainIsNotPruned(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	question(t, p.Hub, 2)
	confirmLongAgo(t, p.Hub, "{[1,2]}")
	a, err := p.Hub.DB.Compare(t.Context(), p.Hub.Peer, commands.Numbering{Stored: commands.Numbers{Through: 1}}, 0, 20)
	require.NoError(t, err)
	require.Equal(t, 1, a.Reopened)
	require.NoError(t, p.Hub.Exec(`UPDATE outbox SET exp = '2020-01-01', created_at = '2020-01-01'`))
	require.NoError(t, p.Hub.DB.Confirm(t.Context(), p.Hub.Peer, commands.Numbers{Through: 2}))

	removed := prune(t, p.Hub)

	require.EqualValues(t, 1, removed["outbox"], "the other one was confirmed a moment ago")
	require.Equal(t, 2, p.Hub.Count(t, `SELECT min(seq) FROM outbox`))
}

// How long ago something was confirmed is known from what is noted now and then.
func TestWhatIsConfirmedIsNoted(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	question(t, p.Hub, 4)
	require.NoError(t, p.Hub.Exec(`UPDATE outbox SET exp = '2020-01-01', created_at = '2020-01-01'`))
	pass := func(through int64, age string) (removed int64) {
		require.NoError(t, p.Hub.DB.Confirm(t.Context(), p.Hub.Peer, commands.Numbers{Through: through}))
		removed = prune(t, p.Hub)["outbox"]
		require.NoError(t, p.Hub.Exec(`UPDATE confirmed_before SET at = at - $1::text::interval`, age))
		return removed
	}
	require.NoError(t, p.Hub.Exec(`INSERT INTO confirmed_before (conn, at, numbers) SELECT conn, now() + interval '1 year', '{[1,4]}' FROM confirmed`), "by a clock that was ahead")

	require.Zero(t, pass(1, "1 hour"), "a moment ago")
	require.Zero(t, pass(2, "6 days"), "an hour ago; the second one is not noted")
	require.Zero(t, pass(3, "2 days"), "six days ago")
	require.EqualValues(t, 1, pass(4, "6 days"), "the first one, eight days ago")
	require.EqualValues(t, 2, pass(4, "0"), "what was noted then")
	require.Equal(t, 2, p.Hub.Count(t, `SELECT count(*) FROM confirmed_before`), "no more than is needed")
}

// Neither what was confirmed nor an old gap makes the relay read more.
func TestTheRelayReadsWhatIsOpenAlone(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	conn, err := pgx.Connect(t.Context(), pgtest.Admin(p.Hub.URL))
	require.NoError(t, err)
	defer conn.Close(context.Background())
	for _, sql := range []string{
		`INSERT INTO outbox (id, conn, seq, queue, kind, digest, exp, envelope) SELECT gen_random_uuid(), id, n, 'ctl', 'agent.status', '', now() + interval '1 day', '' FROM connections, generate_series(1, 20000) AS n`,
		`UPDATE confirmed SET numbers = '{[1,1],[3,19998]}'`,
		`SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; SET plan_cache_mode = force_generic_plan; ANALYZE outbox`,
	} {
		_, err = conn.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	for name, tt := range map[string]struct {
		sql  string
		args []any
		most float64
	}{
		"from the first":   {`SELECT count(*) FROM ` + store.OpenMessagesForTest, []any{p.Hub.Conn.ID, 1, 1 << 40, 256}, 20},
		"from the newest":  {`SELECT count(*) FROM ` + store.OpenMessagesForTest, []any{p.Hub.Conn.ID, 20000, 1 << 40, 256}, 10},
		"to count":         {`SELECT conn::text, count(*) FROM open_outbox GROUP BY conn`, nil, 20},
		"that many are so": {store.ConfirmForTest, []any{p.Hub.Conn.ID, "{[1,20000]}", 100}, 20},
	} {
		_, err = conn.Prepare(t.Context(), name, tt.sql)
		require.NoError(t, err)
		var plan []byte
		require.NoError(t, conn.QueryRow(t.Context(), fmt.Sprintf(`EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE "%s" %s`, name, literals(t, tt.args))).Scan(&plan))
		require.True(t, json.Valid(plan))
		require.Less(t, rowsRead(t, plan), tt.most, "%s: %s", name, plan)
	}
}

// literals are the arguments of an EXECUTE.
func literals(t *testing.T, args []any) (list string) {
	t.Helper()
	for i, a := range args {
		list += map[bool]string{true: "(", false: ", "}[i == 0] + fmt.Sprintf("'%v'", a)
	}
	if list != "" {
		list += ")"
	}
	return list
}

// What fits into a full set is found in one pass through it, not in one for each range.
func TestWhatFitsIsFoundInOnePass(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	conn, err := pgx.Connect(t.Context(), p.Hub.URL)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	quickest := func(ranges int) time.Duration {
		least := time.Hour
		require.NoError(t, p.Hub.Exec(`UPDATE confirmed SET numbers = (SELECT range_agg(int8range(6 * n, 6 * n + 1)) FROM generate_series(1, $1::int) AS n)`, ranges), "a table keeps it compressed")
		for range 3 {
			var n int
			begun := time.Now()
			require.NoError(t, conn.QueryRow(t.Context(), `SELECT count(*) FROM confirmed,
				(SELECT range_agg(int8range(6 * n + d, 6 * n + d + 1)) AS more FROM generate_series(1, $1::int) AS n, LATERAL (SELECT 1 + 2 * (n % 2) AS d) AS x) AS m, unnest(fitting(numbers, more, $1)) AS r`, ranges).Scan(&n))
			require.Equal(t, ranges/2, n, "those that lengthen a range")
			least = min(least, time.Since(begun))
		}
		return least
	}

	few, many := quickest(2500), quickest(20_000)

	require.Less(t, many, 30*few, "eight times as much")
}
