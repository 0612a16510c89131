package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/internal/wait"
)

// An instance that runs acts on what changes in its database, and sleeps otherwise. Its own
// commits it learns of directly, those of other processes by a notification on one session
// that does nothing but listen. A notification is lost with the process that was about to
// send it, so a watcher is called now and then without one, too.
//
// Claimers that wait have a channel of their own, which is notified inside of the
// transactions that make tasks claimable: they are to start at once, and nobody but them
// pays for it. This one may come late, and is sent once for many commits.

// ChangedChannel is notified by processes that do not watch, after they have committed.
const ChangedChannel = "spawnmesh_changed"

const (
	// betweenNotifications is the least time between two notifications of one process, and
	// between two calls about them: many workers must not keep a watcher busy.
	betweenNotifications = time.Second
	// unheard is how often a watcher is called while its session cannot listen.
	unheard = 2 * time.Second
	// notifyPatience bounds each step of sending and receiving notifications, and each end of what is not needed any more.
	notifyPatience = 5 * time.Second
)

// Wrote says who has written, as far as that is known.
type Wrote int

// Why a watcher is called.
const (
	ByThis      Wrote = iota // this process has committed something
	ByAnother                // another process has, as it says, or may have while nobody listened
	PerhapsLost              // nobody has said anything for a while: a notification may be lost
)

// A Watcher is called about commits.
type Watcher struct {
	Changed func(Wrote)   // may be called for nothing; with ByThis it must not block
	Every   time.Duration // how often it is called with PerhapsLost while no other process says anything; more than a second
}

// Watch calls w until ctx ends. It listens on a session of its own; while there is none to
// be had it calls w more often. A database has one watching process at a time: a process
// that watches sends no notifications, and a second one learns of its commits only by Every.
func (db *DB) Watch(ctx context.Context, w Watcher) error {
	db.watcher.Store(&w)
	defer db.watcher.CompareAndSwap(&w, nil)
	for ctx.Err() == nil {
		_ = db.listen(ctx, w) // the database is away, or full: every other use says so
		w.Changed(ByAnother)
		_ = wait.For(ctx, min(unheard, w.Every))
	}
	return nil
}

func (db *DB) listen(ctx context.Context, w Watcher) error {
	conn, err := db.Listener(ctx, ChangedChannel)
	if err != nil {
		return err
	}
	defer closeSoon(ctx, conn)
	for wrote := ByAnother; ; { // what came before was not heard
		w.Changed(wrote)
		if err := wait.For(ctx, betweenNotifications); err != nil {
			return err
		}
		wrote = ByAnother
		notified, err := drain(ctx, conn)
		if err == nil && !notified {
			notified, err = notification(ctx, conn, w.Every-betweenNotifications)
		}
		if err == nil && !notified {
			wrote = PerhapsLost
			err = within(ctx, conn.Ping) // a line that was cut, or is silent, brings nothing
		}
		if err != nil {
			return err
		}
	}
}

// Listener returns a session that listens on a channel. It is none of the pool: whoever asks for it closes it.
func (db *DB) Listener(ctx context.Context, channel string) (conn *pgx.Conn, err error) {
	err = within(ctx, func(ctx context.Context) (err error) {
		config := db.pool.Config().ConnConfig
		config.OnNotification = nil // what comes with another answer stays for the next drain
		if conn, err = pgx.ConnectConfig(ctx, config); err != nil {
			return err
		}
		if _, err = conn.Exec(ctx, `LISTEN `+pgx.Identifier{channel}.Sanitize()); err != nil {
			closeSoon(ctx, conn)
		}
		return err
	})
	return conn, err
}

func closeSoon(ctx context.Context, conn *pgx.Conn) {
	_ = within(context.WithoutCancel(ctx), conn.Close)
}

// within bounds what a server that does not answer could keep for ever.
func within(ctx context.Context, do func(context.Context) error) error {
	ctx, done := context.WithTimeout(ctx, notifyPatience)
	defer done()
	return do(ctx)
}

// drain takes the notifications that are there, and reports whether there were any.
func drain(ctx context.Context, conn *pgx.Conn) (any bool, err error) {
	for {
		more, err := notification(ctx, conn, time.Millisecond)
		if err != nil || !more {
			return any, err
		}
		any = true
	}
}

// notification reports whether one came within d.
func notification(ctx context.Context, conn *pgx.Conn, d time.Duration) (bool, error) {
	patient, done := context.WithTimeout(ctx, d)
	defer done()
	_, err := conn.WaitForNotification(patient)
	if err == nil {
		return true, nil // it is taken off the line, whatever the time is
	}
	if patient.Err() != nil && ctx.Err() == nil && !conn.IsClosed() {
		return false, nil
	}
	return false, err
}
