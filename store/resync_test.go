package store_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/pgtest"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store"
)

// A peer that once lost a message has a gap for ever. What stands behind it is
// not looked at with every link.
func TestAnOldGapIsNoReasonToLookAtEverything(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	p.Order(t, nil)
	conn, err := pgx.Connect(t.Context(), pgtest.Admin(p.Hub.URL))
	require.NoError(t, err)
	defer conn.Close(t.Context())
	_, err = conn.Exec(t.Context(), `INSERT INTO outbox (id, conn, seq, queue, kind, digest, exp, envelope)
		SELECT gen_random_uuid(), $1, n, 'ctl', 'agent.status', '', now() + interval '1 day', '' FROM generate_series(2, 20001) AS n`, p.Hub.Conn.ID)
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), `UPDATE confirmed SET numbers = '{[1,20001]}'`)
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), `SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; ANALYZE outbox`)
	require.NoError(t, err)
	set := store.MissingForTest(commands.Numbers{Through: 20000, Gaps: []commands.Range{{From: 1, To: 2}}}, 20001, false)

	var plan []byte
	err = conn.QueryRow(t.Context(), `EXPLAIN (ANALYZE, FORMAT JSON) `+store.ReopenLostForTest, p.Hub.Conn.ID, set, commands.SpawnKind, false).Scan(&plan)

	require.NoError(t, err)
	require.Less(t, rowsRead(t, plan), 20.0)
	require.Equal(t, 3, p.Hub.Count(t, `SELECT count(*) FROM open_outbox`))
}

// A peer with more gaps than are told has stored more than it says. What it has answered
// there is not lost, unless it was restored.
func TestWhatIsBehindTheLastGapThatIsToldIsNotLost(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	question(t, p.Hub, 2200)
	told := commands.Numbers{Through: 2*commands.MaxMissing + 1} // odd numbers, and every other one up to 2199 behind them
	var answered []int64
	for n := int64(1); n <= 2200; n += 2 {
		answered = append(answered, n)
	}
	for n := int64(2); n < told.Through; n += 2 {
		told.Gaps = append(told.Gaps, commands.Range{From: n, To: n})
	}
	answer(t, p.Hub, answered)

	found, err := p.Hub.DB.Compare(t.Context(), p.Hub.Peer, commands.Numbering{Stored: told, Digest: &commands.History{}}, 0, 20)
	require.NoError(t, err)
	require.Zero(t, found.Reopened)
	require.Equal(t, 1100, p.Hub.Count(t, `SELECT count(*) FROM open_outbox`))

	restored := commands.Numbering{Stored: told, Base: 1 << 21, Digest: &commands.History{}}
	found, err = p.Hub.DB.Compare(t.Context(), p.Hub.Peer, restored, 0, 20)
	require.NoError(t, err)
	require.Equal(t, 99, found.Reopened, "it may have lost what it does not tell")
}

// rowsRead adds up what all parts of a plan have read of tables.
func rowsRead(t *testing.T, plan []byte) (sum float64) {
	t.Helper()
	var all any
	require.NoError(t, json.Unmarshal(plan, &all))
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, x := range v {
				walk(x)
			}
		case map[string]any:
			if v["Relation Name"] != nil {
				loops, _ := v["Actual Loops"].(float64)
				rows, _ := v["Actual Rows"].(float64)
				removed, _ := v["Rows Removed by Filter"].(float64)
				sum += loops * (rows + removed)
			}
			for _, x := range v {
				walk(x)
			}
		}
	}
	walk(all)
	return sum
}

// The order of a task that has started comes again to a peer that has it no more only where
// that peer knows of the start: it asks, or has asked before this side was restored.
func TestTheOrderOfAStartedTaskComesAgain(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		asks     int64
		restored bool
		reopened int
	}{
		"to nobody":                {0, false, 0},
		"to a peer that asks":      {1, false, 1},
		"to a peer that has asked": {0, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := storetest.NewPair(t)
			task := p.Order(t, nil)
			take(t, p.Spoke, p.Spoke.Read(t, p.Hub.Due(t)...))
			require.NoError(t, p.Hub.Exec(`UPDATE confirmed SET numbers = (SELECT int8multirange(int8range(1, last + 1)) FROM sequences)`))
			require.NoError(t, p.Hub.Exec(`UPDATE mirrors SET state = 'running', attempt = 1, started_at = now() WHERE task = $1`, task))
			if test.restored {
				require.NoError(t, p.Hub.Exec(`UPDATE sequences SET recall_from = 1`))
			}

			a, err := p.Hub.DB.Compare(t.Context(), p.Hub.Peer, commands.Numbering{Recall: test.asks}, 0, 20)

			require.NoError(t, err)
			require.Equal(t, test.reopened, a.Reopened)
		})
	}
}

// The same backup may be restored twice, and the peer have messages of the life between. What
// is open gets numbers above those, and is not confirmed in their place.
func TestWhatIsOpenAtARestoreIsSealedAnew(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	task := p.Order(t, nil)

	_, err := p.Hub.DB.BeginIncarnation(t.Context(), []string{"another one"}, "the next one")
	require.NoError(t, err)

	a, err := p.Hub.DB.Compare(t.Context(), p.Hub.Peer, commands.Numbering{Stored: commands.Numbers{Through: 5}}, 0, 20)
	require.NoError(t, err)
	require.Zero(t, a.Confirmed)
	require.Equal(t, 1, p.Hub.Count(t, `SELECT count(*) FROM open_outbox o JOIN sequences s USING (conn) WHERE o.task = $1 AND o.seq = s.last AND o.seq = s.base + 1 AND s.base > 5`, task))
	order := p.Spoke.Read(t, p.Hub.Due(t)...)
	require.Empty(t, take(t, p.Spoke, order)[0].Code)
	require.Equal(t, task, order[0].Task())
}

// What has expired is closed, and not asked for, where the peer has other messages under the
// numbers of a life that the backup does not know: nobody takes it any more.
func TestWhatHasExpiredAtARestoreIsClosed(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	expired, open := p.Order(t, nil), p.Order(t, nil)
	require.NoError(t, p.Hub.Exec(`UPDATE outbox SET exp = now() - interval '1 minute' WHERE task = $1`, expired))

	a, err := p.Hub.DB.Compare(t.Context(), p.Hub.Peer, commands.Numbering{Stored: commands.Numbers{Through: 5}}, 0, 20)

	require.NoError(t, err)
	require.Equal(t, []int64{2}, a.Ask)
	require.Zero(t, a.Confirmed, "the peer does not have it")
	require.Equal(t, 1, p.Hub.Count(t, `SELECT count(*) FROM open_outbox`))
	require.Equal(t, 1, p.Hub.Count(t, `SELECT count(*) FROM open_outbox WHERE task = $1`, open))
}

// A spoke that was restored takes its order in again, and says that it is queued. Who asks
// later is told that the attempt runs which had started: it must not start once more.
func TestAnAttemptThatHasStartedIsRecalledAsRunning(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		ends string
		want commands.State
	}{"its end is not known": {`[]`, commands.Running}, "it has ended": {`[{"attempt": 1}]`, commands.Queued}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, task, accepted := accepted(t)
			in := p.Hub.Read(t, accepted)
			_, err := p.Hub.DB.TakeIn(t.Context(), p.Hub.Conn.ID, 20, in, store.MoveMirrors(storetest.Nowhere))
			require.NoError(t, err)
			require.NoError(t, p.Hub.Exec(`UPDATE mirrors SET state = 'queued', attempt = 1, attempts = $2 WHERE task = $1`, task, test.ends))

			n, err := p.Hub.DB.Numbering(t.Context(), p.Hub.Conn.ID, false, &commands.Numbering{Recall: 1})

			require.NoError(t, err)
			require.Len(t, n.Recalled.Tasks, 1)
			require.Equal(t, test.want, n.Recalled.Tasks[0].State)
			require.Equal(t, 1, n.Recalled.Tasks[0].Attempt)
		})
	}
}

// Whether the attempt of what is paused, or asks, is over decides what a restored spoke does with it; and what was said of its
// pause before does not count when it is sent again, but what the spoke has not taken yet does.
func TestAStandingSaysWhetherItsAttemptIsOver(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		state, ends, pause string
		over               bool
		word               int64
	}{
		"paused as it ran":     {"paused", `[]`, `{"number": 70, "state": "taken"}`, false, 70},
		"paused between two":   {"paused", `[{"attempt": 1}]`, `{"number": 70, "state": "refused"}`, true, 70},
		"asks between two":     {"awaiting_input", `[{"attempt": 1}]`, `null`, true, 0},
		"a word on its way":    {"paused", `[]`, `{"number": 70, "state": "sent"}`, false, 68},
		"the first on its way": {"paused", `[]`, `{"number": 1, "state": "sent"}`, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, task, accepted := accepted(t)
			_, err := p.Hub.DB.TakeIn(t.Context(), p.Hub.Conn.ID, 20, p.Hub.Read(t, accepted), store.MoveMirrors(storetest.Nowhere))
			require.NoError(t, err)
			require.NoError(t, p.Hub.Exec(`UPDATE mirrors SET state = $2, attempt = 1, attempts = $3, pause = nullif($4::jsonb, 'null') WHERE task = $1`, task, test.state, test.ends, test.pause))

			n, err := p.Hub.DB.Numbering(t.Context(), p.Hub.Conn.ID, false, &commands.Numbering{Recall: 1})

			require.NoError(t, err)
			got := n.Recalled.Tasks[0]
			require.Equal(t, []any{commands.State(test.state), test.over, test.word}, []any{got.State, got.Over, got.Word})
		})
	}
}

// After an outage there may be more open messages than are sealed at once. All get numbers
// in their order.
func TestManyOpenMessagesAreSealedAnew(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	task := p.Order(t, nil)
	const more = 1200
	require.NoError(t, p.Hub.DB.Tx(t.Context(), "asking", func(_ context.Context, tx *store.Tx) error {
		for range more {
			tx.Send(store.Draft{Conn: p.Hub.Conn.ID, Body: &commands.Status{Task: task}, Life: time.Hour})
		}
		return nil
	}))
	order := `SELECT count(DISTINCT seq) FROM (SELECT seq, row_number() OVER (ORDER BY id) AS n FROM outbox) AS o, sequences s WHERE o.seq = s.base + o.n`
	require.Equal(t, more+1, p.Hub.Count(t, order))

	_, err := p.Hub.DB.BeginIncarnation(t.Context(), []string{"another one"}, "the next one")

	require.NoError(t, err)
	require.Equal(t, 1, p.Hub.Count(t, `SELECT count(*) FROM sequences WHERE base > $1 AND last = base + $1`, more+1))
	require.Equal(t, more+1, p.Hub.Count(t, order))
}
