package store_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store"
)

// A server that hangs is an outage like any other: it counts once, whoever waits for it and however
// long. That a statement takes long is none.
func TestAnOutageCountsOnce(t *testing.T) {
	t.Parallel()
	open := func(t *testing.T) (*storetest.Proxy, *store.DB) {
		p := storetest.NewProxy(t, storetest.URL(t))
		return p, storetest.OpenSide(t, p.URL, 1, 2, 4).DB
	}
	now := func(db *store.DB, most time.Duration) error {
		ctx, done := context.WithTimeout(t.Context(), most)
		defer done()
		_, err := db.Now(ctx)
		return err
	}
	t.Run("a server that hangs", func(t *testing.T) {
		t.Parallel()
		p, db := open(t)
		for outage := range int64(2) {
			end := sync.OnceFunc(p.Hang())
			t.Cleanup(end)
			first := make(chan error, 1)
			go func() { first <- now(db, time.Minute) }()
			for began := time.Now(); db.Outages() == outage; {
				require.Error(t, now(db, 100*time.Millisecond))
				require.Less(t, time.Since(began), 30*time.Second)
			}
			require.Error(t, now(db, 100*time.Millisecond))
			end()
			require.NoError(t, <-first)
			require.Equal(t, outage+1, db.Outages())
		}
	})
	t.Run("one that is away", func(t *testing.T) {
		t.Parallel()
		p, db := open(t)
		p.Away(true)
		p.Cut(p.Commits() + 1)
		_ = db.Audit(t.Context(), store.AuditRow{Actor: "test", Action: "test"}) // its connection ends
		require.Error(t, now(db, time.Second))
		p.Away(false)
		require.NoError(t, now(db, time.Minute))
		require.Equal(t, int64(1), db.Outages())
	})
	t.Run("a statement that takes long", func(t *testing.T) {
		t.Parallel()
		_, db := open(t)
		require.NoError(t, db.Read(t.Context(), "sleeping", func(ctx context.Context, conn *pgxpool.Conn) error {
			_, err := conn.Exec(ctx, `SELECT pg_sleep(6)`)
			return err
		}))
		require.Zero(t, db.Outages())
	})
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
