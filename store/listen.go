package store

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/wait"
)

// listening marks connections that listen to a channel. They are the pool's own: who waits needs
// no second one for what it does when it is told.
const listening = "listening to "

// rings are sent when a notification came, by channel.
type rings struct {
	mu sync.Mutex // guards of
	of map[string]wait.Signal
}

func (r *rings) on(channel string) wait.Signal {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == nil {
		r.of = map[string]wait.Signal{}
	}
	if r.of[channel] == nil {
		r.of[channel] = wait.NewSignal()
	}
	return r.of[channel]
}

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
		if data := conn.PgConn().CustomData(); data[listening+channel] == nil {
			data[listening+channel] = true
			_, err := conn.Exec(ctx, `LISTEN `+pgx.Identifier{channel}.Sanitize())
			return err
		}
		select {
		case <-db.told.on(channel):
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

// tell notes a notification. It keeps one of a channel, for whoever waits next.
func (db *DB) tell(_ *pgconn.PgConn, n *pgconn.Notification) { db.told.on(n.Channel).Send() }

// AwaitChange waits until another process has sent something over a connection that it does not
// serve, or has changed a connection, and for d at most. It may return without a change.
func (db *DB) AwaitChange(ctx context.Context, d time.Duration) error {
	return db.Await(ctx, "waiting for what other processes change", changedChannel, d, func(context.Context, *pgx.Conn) error { return nil })
}

// full says what to do when the server has no connection left.
func full(err error) error {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == "53300" {
		return commands.Refuse(commands.StoreDown, "the database server has no connection left: %s", pg.Message).
			Hinting("run fewer workers at once, or raise max_connections: of a private server in pg/user.conf of the data directory, and start the instance again")
	}
	return err
}
