package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/spawnmesh/spawnmesh/internal/wait"
)

// An Outbox is what of the messages to one peer is not confirmed.
type Outbox struct {
	Conn        string
	Unconfirmed int64         // numbers of messages: what was never used of them is confirmed
	Age         time.Duration // of the oldest; 0 = there is none
}

// Outboxes returns those of all connections that have not ended. It counts sets of numbers
// and reads one message of each connection, however many wait.
func (db *DB) Outboxes(ctx context.Context) (list []Outbox, err error) {
	err = db.Read(ctx, "looking at what is not confirmed", func(ctx context.Context, conn *pgxpool.Conn) error {
		rows, err := conn.Query(ctx, `
			SELECT c.id::text, coalesce((SELECT sum(upper(g) - lower(g)) FROM unnest(x.gaps) AS g), 0)::bigint,
				coalesce(extract(epoch FROM clock_timestamp() - (
					SELECT o.created_at FROM (SELECT g FROM unnest(x.gaps) AS g ORDER BY lower(g) OFFSET 0) AS open,
						LATERAL (SELECT created_at FROM outbox WHERE conn = c.id AND seq >= lower(open.g) AND seq < upper(open.g) ORDER BY seq LIMIT 1) AS o LIMIT 1)), 0)::float8
			FROM connections c JOIN sequences s ON s.conn = c.id LEFT JOIN confirmed f ON f.conn = c.id,
				LATERAL (SELECT int8multirange(int8range(1, s.last + 1)) - coalesce(f.numbers, '{}') AS gaps) AS x
			WHERE NOT has_ended(c.state)`)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (o Outbox, err error) {
			var seconds float64
			err = row.Scan(&o.Conn, &o.Unconfirmed, &seconds)
			o.Age = max(0, time.Duration(seconds*float64(time.Second))) // the clock may have been set back
			return o, err
		})
		return err
	})
	return list, err
}

// Sizes are bytes.
type Sizes struct {
	Tables    int64 // those that grow, with their indexes
	Logs      int64 // output of agents that is kept in files
	Envelopes int64 // signed bytes of messages that were received
}

// Sizes asks how large the files of the tables are, and for sums that are kept.
func (db *DB) Sizes(ctx context.Context) (s Sizes, err error) {
	err = db.Read(ctx, "asking for sizes", func(ctx context.Context, conn *pgxpool.Conn) error {
		return conn.QueryRow(ctx, `SELECT kept_bytes('', $1), kept_bytes('logs', '{}'), kept_bytes('envelopes', '{}')`, growing()).Scan(&s.Tables, &s.Logs, &s.Envelopes)
	})
	return s, err
}

// growing are the tables with as many rows as there is work and history.
func growing() []string {
	list := []string{"ready", "due", "parked", "leases", "logs", "log_segments", "log_streams", "log_sums", "tallies"}
	for _, k := range Kinds {
		list = append(list, k.tables...)
	}
	return list
}

// Migrated is nil where the schema is that of this program.
func (db *DB) Migrated(ctx context.Context) error {
	var have int64
	err := db.Read(ctx, "asking for the version of the schema", func(ctx context.Context, conn *pgxpool.Conn) error {
		return conn.QueryRow(ctx, `SELECT max(version_id) FROM goose_db_version`).Scan(&have)
	})
	if know := newestMigration(); err == nil && have != know {
		err = fmt.Errorf("the database has schema %d, and this program knows %d: another version of it has migrated the database, or a backup was restored; start the one that fits", have, know)
	}
	return err
}

// hungAfter is how long a try may wait before the server is asked whether it is there.
const hungAfter = 5 * time.Second

// errHangs is why a try is given up that waits for a server which takes no connection either.
var errHangs = errors.New("the database server hangs")

// try runs fn, and notes what it tells of the server. A server that hangs gives no error: fn would wait for as long as its caller
// does, so it is given up after outageLimit.
func (db *DB) try(ctx context.Context, fn func(context.Context) error) error {
	trying, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	watch := time.AfterFunc(hungAfter, func() { db.watch(trying, giveUp) })
	defer watch.Stop()
	err := fn(trying)
	if err != nil && context.Cause(trying) == errHangs {
		err = fmt.Errorf("%w: %w", errHangs, err)
	}
	db.noteServer(ctx, err)
	return err
}

// watch asks the server now and then, while a try waits.
func (db *DB) watch(trying context.Context, giveUp context.CancelCauseFunc) {
	for began := time.Now(); ; {
		db.askServer()
		if db.away.Load() && time.Since(began) >= outageLimit-hungAfter {
			giveUp(errHangs)
			return
		}
		if wait.For(trying, hungAfter) != nil {
			return
		}
	}
}

// askServer asks a server that has let a try wait, over a connection of its own: the try may wait
// for somebody else.
func (db *DB) askServer() {
	if db.asking.Swap(true) {
		return
	}
	defer db.asking.Store(false)
	ctx, done := context.WithTimeout(context.Background(), hungAfter)
	defer done()
	conn, err := pgx.ConnectConfig(ctx, db.pool.Config().ConnConfig)
	if err == nil {
		err = conn.Close(ctx)
		db.away.Store(false)
	}
	if outage(err) {
		db.lostServer()
	}
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
