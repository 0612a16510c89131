package store

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/spawnmesh/spawnmesh/commands"
)

// listening marks connections that listen. They are the pool's own: who waits needs
// no second one for what it does when it is told.
const listening = "listening"

// Await waits for a notification on a channel, and for d at most. It returns at
// once when the connection has only now begun to listen: what came before is not
// told. prepare runs first, on the connection that waits. What came while nobody
// waited counts once.
func (db *DB) Await(ctx context.Context, doing, channel string, d time.Duration, prepare func(context.Context, *pgx.Conn) error) error {
	return db.Read(ctx, doing, func(ctx context.Context, c *pgxpool.Conn) error {
		conn := c.Conn()
		if err := prepare(ctx, conn); err != nil {
			return err
		}
		if data := conn.PgConn().CustomData(); data[listening] == nil {
			data[listening] = channel
			_, err := conn.Exec(ctx, `LISTEN `+pgx.Identifier{channel}.Sanitize())
			return err
		}
		select {
		case <-db.told:
			return nil
		default:
		}
		patient, done := context.WithTimeout(ctx, d)
		defer done()
		err := conn.PgConn().WaitForNotification(patient)
		if patient.Err() != nil && !conn.IsClosed() {
			return ctx.Err()
		}
		return err
	})
}

// heard notes a notification. It keeps one, for whoever waits next.
func (db *DB) heard(*pgconn.PgConn, *pgconn.Notification) {
	select {
	case db.told <- struct{}{}:
	default:
	}
}

// full says what to do when the server has no connection left.
func full(err error) error {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == "53300" {
		return commands.Refuse(commands.StoreDown, "the database server has no connection left: %s", pg.Message).
			Hinting("run fewer workers at once, or raise max_connections: of a private server in pg/user.conf of the data directory, and start the instance again")
	}
	return err
}
