package store_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store"
)

// A server that is away is an outage, which counts once however often it is tried.
func TestAServerThatIsAwayCountsOnce(t *testing.T) {
	t.Parallel()
	p := storetest.NewProxy(t, storetest.URL(t))
	db := storetest.OpenSide(t, p.URL, 1, 2, 4).DB
	now := func(most time.Duration) error {
		ctx, done := context.WithTimeout(t.Context(), most)
		defer done()
		_, err := db.Now(ctx)
		return err
	}
	p.Away(true)
	p.Cut(p.Commits() + 1)
	_ = db.Audit(t.Context(), store.AuditRow{Actor: "test", Action: "test"}) // its connection ends
	require.Error(t, now(time.Second))
	p.Away(false)
	require.NoError(t, now(time.Minute))
	require.Equal(t, int64(1), db.Outages())
}

// Nobody waits for ever for a server that hangs, whatever the wait is for and however long the caller would wait. What was given up
// is said to be an outage; of a commit it is said that it may have happened.
func TestNobodyWaitsForEverForAServerThatHangs(t *testing.T) {
	t.Parallel()
	no := errors.New("no")
	look := func(ctx context.Context, tx *store.Tx) error {
		_, err := tx.Exec(ctx, `SELECT 1`)
		return err
	}
	note := store.AuditRow{Actor: "test", Action: "test.hung"}
	for name, c := range map[string]struct {
		do      func(ctx context.Context, db *store.DB, hang func()) error
		is, not error
		noted   int // rows that are there when the server goes on
	}{
		"a statement that is tried again": {do: func(ctx context.Context, db *store.DB, hang func()) error {
			hang()
			_, err := db.Now(ctx)
			return err
		}, not: store.ErrCommitUnknown},
		"a statement that is not": {do: func(ctx context.Context, db *store.DB, hang func()) error {
			hang()
			_, err := db.AuditTrail(ctx, "", 0, 10)
			return err
		}, not: store.ErrCommitUnknown},
		"a row": {do: func(ctx context.Context, db *store.DB, hang func()) error {
			hang()
			_, err := db.Taken(ctx, uuid.NewString())
			return err
		}, not: store.ErrCommitUnknown},
		"the statements of a transaction": {do: func(ctx context.Context, db *store.DB, hang func()) error {
			return db.Tx(ctx, "testing", func(ctx context.Context, tx *store.Tx) error {
				tx.Audit(note)
				err := look(ctx, tx)
				hang()
				return errors.Join(err, look(ctx, tx))
			})
		}, not: store.ErrCommitUnknown},
		"a commit": {do: func(ctx context.Context, db *store.DB, hang func()) error {
			return db.Tx(ctx, "testing", func(ctx context.Context, tx *store.Tx) error {
				tx.Audit(note)
				err := look(ctx, tx)
				hang()
				return err
			})
		}, is: store.ErrCommitUnknown, noted: 1},
		"a transaction that is rolled back": {do: func(ctx context.Context, db *store.DB, hang func()) error {
			return db.Tx(ctx, "testing", func(ctx context.Context, tx *store.Tx) error {
				tx.Audit(note)
				err := look(ctx, tx)
				hang()
				return errors.Join(err, no)
			})
		}, is: no, not: store.ErrCommitUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := storetest.NewProxy(t, storetest.URL(t))
			db := storetest.OpenSide(t, p.URL, 1, 2, 4).DB
			require.NoError(t, db.Audit(t.Context(), store.AuditRow{Actor: "test", Action: "test"})) // its statements need no round trip of their own any more
			goOn := func() {}
			t.Cleanup(func() { goOn() })
			hang := sync.OnceFunc(func() { goOn = sync.OnceFunc(p.Hang()) })
			done := make(chan error, 1)

			go func() { done <- c.do(t.Context(), db, hang) }()

			var err error
			select {
			case err = <-done:
			case <-time.After(3 * time.Minute):
				require.FailNow(t, "it waits for ever")
			}
			require.Error(t, err)
			if c.is == nil {
				require.ErrorContains(t, err, "the database server hangs")
			} else {
				require.ErrorIs(t, err, c.is)
			}
			require.NotErrorIs(t, err, context.Canceled, "the caller goes on")
			if c.not != nil {
				require.NotErrorIs(t, err, c.not)
			}
			goOn()
			require.NoError(t, db.Read(t.Context(), "counting", func(ctx context.Context, conn *pgxpool.Conn) error {
				var n int
				err := conn.QueryRow(ctx, `SELECT count(*) FROM audit WHERE action = $1`, note.Action).Scan(&n)
				require.Equal(t, c.noted, n)
				return err
			}))
		})
	}
}

// hangsBefore lets the server hang before a statement goes out to it.
type hangsBefore struct {
	sql  string // "" = before none
	hang func()
}

func (h *hangsBefore) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	if q.SQL == h.sql {
		h.hang()
	}
	return ctx
}

func (h *hangsBefore) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// Who has looked at the end of the audit has nothing to commit, and does not wait for a server that hangs by then.
func TestTheEndOfALookIsNotWaitedForForEver(t *testing.T) {
	t.Parallel()
	p := storetest.NewProxy(t, storetest.URL(t))
	s := storetest.OpenSide(t, p.URL, 1, 2, 1)
	ends := make(chan func(), 1)
	h := &hangsBefore{hang: sync.OnceFunc(func() { ends <- p.Hang() })}
	db, err := store.Open(t.Context(), store.Config{URL: p.URL, Self: s.Self(), Signer: s.Signing, PoolSize: 1, Tracer: h})
	require.NoError(t, err)
	t.Cleanup(db.Close)
	t.Cleanup(func() {
		h.hang() // where nothing was rolled back
		(<-ends)()
	})
	h.sql = "rollback"
	done := make(chan error, 1)

	go func() {
		_, err := db.CheckAuditTail(t.Context(), s.Identity, 10)
		done <- err
	}()

	select {
	case err := <-done:
		require.NoError(t, err)
	case <-time.After(time.Minute):
		require.Fail(t, "it waits for ever")
	}
	require.Len(t, ends, 1, "it was rolled back")
}

// contextOf keeps the context of a statement.
type contextOf struct {
	sql string
	ctx context.Context
}

func (c *contextOf) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	if q.SQL == c.sql {
		c.ctx = ctx
	}
	return ctx
}

func (c *contextOf) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// Nobody asks any more whether the server is there when a wait for it has ended, however it has: by its answer, by its last row, or where
// its rows are not read to their end.
func TestNobodyWatchesAWaitThatHasEnded(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	for name, c := range map[string]struct {
		sql string
		do  func(db *store.DB, sql string) error
	}{
		"an answer": {`SELECT 1`, func(db *store.DB, sql string) error { return store.ExecForTest(t.Context(), db, sql) }},
		"a row": {`SELECT clock_timestamp()`, func(db *store.DB, _ string) error {
			_, err := db.Now(t.Context())
			return err
		}},
		"the last row": {`SELECT 1`, func(db *store.DB, sql string) error {
			rows, err := store.QueryForTest(t.Context(), db, sql)
			require.NoError(t, err)
			require.True(t, rows.Next())
			require.False(t, rows.Next())
			return rows.Err()
		}},
		"rows that are left": {`SELECT generate_series(1, 1000)`, func(db *store.DB, sql string) error {
			rows, err := store.QueryForTest(t.Context(), db, sql)
			require.NoError(t, err)
			require.True(t, rows.Next())
			rows.Close()
			return rows.Err()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			of := &contextOf{sql: c.sql}
			db, err := store.Open(t.Context(), store.Config{URL: s.URL, Self: s.Self(), Signer: s.Signing, PoolSize: 1, Tracer: of})
			require.NoError(t, err)
			t.Cleanup(db.Close)

			require.NoError(t, c.do(db, c.sql))

			require.NotNil(t, of.ctx)
			require.ErrorIs(t, of.ctx.Err(), context.Canceled)
		})
	}
}
