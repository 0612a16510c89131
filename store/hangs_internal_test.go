package store

import (
	"context"
	"errors"
	"maps"
	"net"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// What comes of a new connection to a server that answers no statement.
type line int

const (
	silent  line = iota // nothing comes back
	refused             // nobody listens
	taken               // the server is there, and busy
)

// from is a server that is there until some time after its start, and something else from then on.
func from(at time.Duration, then line) func(time.Duration) line {
	return func(age time.Duration) line {
		if age < at {
			return taken
		}
		return then
	}
}

// always is a server that is the same at any time.
func always(l line) func(time.Duration) line { return func(time.Duration) line { return l } }

// dialled is a DB whose server is what is says at each age of it. It is for a bubble, whose time it takes; end waits for all that it runs.
func dialled(t *testing.T, is func(age time.Duration) line) (db *DB, end func()) {
	t.Helper()
	began := time.Now()
	var mu sync.Mutex // guards lines
	var lines []net.Conn
	pc, err := poolConfig(Config{URL: "postgres://u:p@127.0.0.1:1/d?sslmode=disable", PoolSize: 8})
	require.NoError(t, err)
	pc.ConnConfig.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) {
		switch is(time.Since(began)) {
		case refused:
			return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
		case silent:
			<-ctx.Done()
			return nil, ctx.Err()
		}
		here, there := net.Pipe()
		mu.Lock()
		lines = append(lines, there)
		mu.Unlock()
		go busy(there)
		return here, nil
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), pc)
	require.NoError(t, err)
	db = &DB{}
	db.pool = watchedPool{pool, db}
	return db, func() {
		pool.Close()
		time.Sleep(time.Hour) // of the bubble: what was given up ends in its own time
		mu.Lock()
		defer mu.Unlock()
		for _, l := range lines { // a side that closes may still read what the other one does not say
			_ = l.Close()
		}
		synctest.Wait()
	}
}

// busy is a session that is there, and answers no statement.
func busy(conn net.Conn) {
	defer conn.Close()
	b := pgproto3.NewBackend(conn, conn)
	first, err := b.ReceiveStartupMessage()
	if _, starts := first.(*pgproto3.StartupMessage); err != nil || !starts {
		return
	}
	b.Send(&pgproto3.AuthenticationOk{})
	b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	for err = b.Flush(); err == nil; {
		_, err = b.Receive()
	}
}

// A wait is given up 20 s after it began where the server has answered nothing, and else 15 to 20 s after its last sign, seen every five
// to ten; one that tries again, after 40 s at most. While the server takes connections everybody waits as long as he likes.
func TestWhenAWaitForTheServerIsGivenUp(t *testing.T) {
	t.Parallel()
	exec := func(ctx context.Context, db *DB) error { _, err := db.pool.Exec(ctx, "SELECT 1"); return err }
	single := map[string]func(context.Context, *DB) error{
		"exec": exec,
		"row":  func(ctx context.Context, db *DB) error { return db.pool.QueryRow(ctx, "SELECT 1").Scan(new(int)) },
		"rows": func(ctx context.Context, db *DB) error {
			rows, err := db.pool.Query(ctx, "SELECT 1")
			if err != nil {
				return err
			}
			for rows.Next() {
			}
			return rows.Err()
		},
	}
	again := map[string]func(context.Context, *DB) error{"again": func(ctx context.Context, db *DB) error {
		return db.retry(ctx, func(ctx context.Context) error {
			conn, err := db.pool.Acquire(ctx)
			if err != nil {
				return err
			}
			defer conn.Release()
			_, err = conn.Exec(ctx, "SELECT 1")
			return err
		})
	}}
	all := maps.Clone(again)
	maps.Copy(all, single)
	const patience = 3 * time.Minute // of who waits
	for name, c := range map[string]struct {
		is          func(age time.Duration) line
		waits       map[string]func(context.Context, *DB) error
		least, most time.Duration
		err         error
		outages     int64
	}{
		"silent":                     {always(silent), all, 20 * time.Second, 20 * time.Second, errHangs, 1},
		"away":                       {always(refused), again, 20 * time.Second, 20*time.Second + 500*time.Millisecond, syscall.ECONNREFUSED, 1},
		"away after the beginning":   {from(time.Second, refused), single, 20 * time.Second, 20 * time.Second, errHangs, 1},
		"silent after seven":         {from(7*time.Second, silent), single, 25 * time.Second, 25 * time.Second, errHangs, 1},
		"silent after half a minute": {from(33*time.Second, silent), single, 33*time.Second + 15*time.Second, 33*time.Second + 20*time.Second, errHangs, 1},
		"busy":                       {always(taken), all, patience, patience, context.DeadlineExceeded, 0},
		"away for a moment": {func(age time.Duration) line {
			if age > 6*time.Second && age < 12*time.Second {
				return silent
			}
			return taken
		}, single, patience, patience, context.DeadlineExceeded, 1},
		"away, then silent": {func(age time.Duration) line {
			if age < 19*time.Second {
				return refused
			}
			return silent
		}, again, 20 * time.Second, 40 * time.Second, errHangs, 1},
	} {
		for how, wait := range c.waits {
			t.Run(name+", "+how, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					db, end := dialled(t, c.is)
					defer end()
					ctx, done := context.WithTimeout(t.Context(), patience)
					defer done()
					began, ended := time.Now(), make(chan error, 1)

					go func() { ended <- wait(ctx, db) }()

					var err error
					select {
					case err = <-ended:
					case <-time.After(2 * patience):
						require.Fail(t, "it waits for ever")
					}
					took := time.Since(began)
					require.ErrorIs(t, err, c.err)
					require.True(t, c.err == errHangs || !errors.Is(err, errHangs), "%v", err)
					require.GreaterOrEqual(t, took, c.least)
					require.LessOrEqual(t, took, c.most)
					require.Equal(t, c.outages, db.Outages())
				})
			})
		}
	}
}

// A server that hangs is an outage like any other: it counts once, whoever waits for it and however long. That a statement takes long is
// none.
func TestAnOutageCountsOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const hour = time.Hour // the server is silent in every second one
		db, end := dialled(t, func(age time.Duration) line {
			if age/hour%2 == 0 {
				return taken
			}
			return silent
		})
		defer end()
		began := time.Now()
		wait := func(at time.Duration) error {
			time.Sleep(time.Until(began.Add(at)))
			ctx, done := context.WithTimeout(t.Context(), time.Minute)
			defer done()
			_, err := db.pool.Exec(ctx, "SELECT 1")
			return err
		}
		for outage := range 2 {
			at := 2 * hour * time.Duration(outage)
			require.ErrorIs(t, wait(at), context.DeadlineExceeded)
			require.EqualValues(t, outage, db.Outages(), "a statement that takes long")

			errs := make(chan error, 8)
			for n := range 4 { // some wait at the same time, and some later
				go func() {
					errs <- wait(at + hour + time.Duration(n)*3*time.Second)
					errs <- wait(at + hour + time.Duration(n+1)*7*time.Minute)
				}()
			}
			for range 8 {
				require.ErrorIs(t, <-errs, errHangs)
			}

			require.EqualValues(t, outage+1, db.Outages())
		}
	})
}
