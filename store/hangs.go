package store

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/spawnmesh/spawnmesh/internal/wait"
)

// hungAfter is how long a wait for the server lasts before the server is asked whether it is there, and for how long that is asked.
const hungAfter = 5 * time.Second

// hangs is a [net.Error]: who tells outages from defects takes it for the network's.
type hangs struct{}

func (hangs) Error() string {
	return "the database server hangs: it has answered nothing for " + outageLimit.String() + ", and takes no new connection"
}
func (hangs) Timeout() bool   { return true }
func (hangs) Temporary() bool { return true }

// errHangs is why a wait was given up for a server that takes no connection either. It stands alone: what was given up says that its
// context was cancelled, and that of the caller was not.
var errHangs error = hangs{}

// try runs fn, which is given up where the server hangs, and notes what it tells of the server.
func (db *DB) try(ctx context.Context, fn func(context.Context) error) (err error) {
	trying, end := db.watched(ctx)
	defer func() { err = end(err) }() // also where fn panics: nobody watches then
	return fn(trying)
}

// watched returns the context of one wait for the server. A server that hangs gives no error, and would be waited for as long as the
// caller likes. end takes what came of the wait, returns what to say of it, and is called once.
func (db *DB) watched(ctx context.Context) (trying context.Context, end func(error) error) {
	trying, giveUp := context.WithCancelCause(ctx)
	watch := time.AfterFunc(hungAfter, func() { db.watch(trying, giveUp) })
	return trying, func(err error) error {
		watch.Stop()
		if err != nil && context.Cause(trying) == errHangs {
			err = errHangs
		}
		giveUp(nil)
		db.noteServer(ctx, err)
		return err
	}
}

// watch asks the server now and then while somebody waits for it, and gives the wait up where no answer came for outageLimit.
func (db *DB) watch(trying context.Context, giveUp context.CancelCauseFunc) {
	for began := time.Now(); ; {
		if db.answers() {
			began = time.Now() // who waits waits for somebody else
		} else if time.Since(began) >= outageLimit-hungAfter {
			giveUp(errHangs)
			return
		}
		if wait.For(trying, hungAfter) != nil {
			return
		}
	}
}

// answers asks the server over a connection of its own, and notes what that tells. All who ask at the same time share one answer.
func (db *DB) answers() bool {
	there, _, _ := db.asking.Do("", func() (any, error) {
		ctx, done := context.WithTimeout(context.Background(), hungAfter)
		defer done()
		conn, err := pgx.ConnectConfig(ctx, db.pool.Config().ConnConfig)
		if err == nil {
			_ = conn.Close(ctx)
		}
		if outage(err) {
			db.lostServer()
			return false, nil
		}
		db.away.Store(false)
		return true, nil
	})
	return there.(bool)
}

// noteServer notes by err whether the server answers, could not be reached, or went away. That the
// caller had no more time says nothing of the server.
func (db *DB) noteServer(ctx context.Context, err error) {
	_, refused := errors.AsType[*pgconn.ConnectError](err)
	_, said := errors.AsType[*pgconn.PgError](err)
	switch {
	case refused || outage(err):
		if ctx.Err() == nil {
			db.lostServer()
		}
	case err == nil || said:
		db.away.Store(false)
	}
}

// lostServer counts an outage, once until the server answers.
func (db *DB) lostServer() {
	if !db.away.Swap(true) {
		db.outages.Add(1)
	}
}

// Outages says how often the database could not be reached, went away or hung, since it was opened.
func (db *DB) Outages() int64 { return db.outages.Load() }

// A watchedPool is the pool of a DB: a single statement of it is given up as what [DB.try] runs.
type watchedPool struct {
	*pgxpool.Pool
	db *DB
}

// Exec is that of the pool.
func (p watchedPool) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	ctx, end := p.db.watched(ctx)
	tag, err := p.Pool.Exec(ctx, sql, args...)
	return tag, end(err)
}

// Query is that of the pool. The wait ends with the last row.
func (p watchedPool) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	ctx, end := p.db.watched(ctx)
	rows, err := p.Pool.Query(ctx, sql, args...)
	if err != nil {
		return rows, end(err)
	}
	return &watchedRows{Rows: rows, ended: sync.OnceValue(func() error { return end(rows.Err()) })}, nil
}

// QueryRow is that of the pool.
func (p watchedPool) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	ctx, end := p.db.watched(ctx)
	return watchedRow{p.Pool.QueryRow(ctx, sql, args...), end}
}

type watchedRow struct {
	row pgx.Row
	end func(error) error
}

func (r watchedRow) Scan(dest ...any) error { return r.end(r.row.Scan(dest...)) }

type watchedRows struct {
	pgx.Rows
	ended func() error // ends the wait, and is why the rows ended, if by a fault
}

func (r *watchedRows) Next() bool {
	more := r.Rows.Next()
	if !more {
		_ = r.ended()
	}
	return more
}

func (r *watchedRows) Close() {
	r.Rows.Close()
	_ = r.ended()
}

// Err may be asked before the rows were read: whether they have ended is not known then.
func (r *watchedRows) Err() error {
	if err := r.Rows.Err(); err == nil {
		return nil
	}
	return r.ended()
}
