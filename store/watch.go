package store

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/spawnmesh/spawnmesh/internal/wait"
)

// An instance that runs acts on what changes in its database, and sleeps otherwise. What
// its own process commits it is told directly, what another process commits by a
// notification. Both are hints: a notification is lost with the process that was about
// to send it. So whoever watches is called now and then without one, too.

// ChangedChannel is notified when a process that does not watch has written something.
const ChangedChannel = "spawnmesh_changed"

const (
	// betweenHints is the least time between two notifications of one process, and
	// between two calls of who watches: many workers must not keep it busy.
	betweenHints = time.Second
	// deaf is how often who watches is called while it cannot listen.
	deaf = 2 * time.Second
	// hintPatience bounds each step of sending and hearing notifications.
	hintPatience = 5 * time.Second
)

// A Watcher is called about commits. It must not block, and calls may be for nothing.
type Watcher struct {
	// Own is called after this process has written something.
	Own func()
	// Others is called when another process may have written something: when it says
	// so, and every so often without that.
	Others func()
	Every  time.Duration // more than a second
}

// Watch calls w until ctx ends; a database has one watcher at a time. It listens on a
// connection of its own. Where there is none to be had it calls more often.
func (db *DB) Watch(ctx context.Context, w Watcher) error {
	db.watcher.Store(&w)
	defer db.watcher.CompareAndSwap(&w, nil)
	for ctx.Err() == nil {
		_ = db.listen(ctx, w) // the database is away, or full: every other use says so
		w.Others()
		_ = wait.For(ctx, min(deaf, w.Every))
	}
	return nil
}

func (db *DB) listen(ctx context.Context, w Watcher) error {
	conn, err := db.listener(ctx)
	if err != nil {
		return err
	}
	defer closeSoon(ctx, conn)
	for {
		w.Others() // at first for what came before: that is not told
		if err := wait.For(ctx, betweenHints); err != nil {
			return err
		}
		told, err := drain(ctx, conn)
		if err == nil && !told {
			told, err = awaitHint(ctx, conn, w.Every-betweenHints)
		}
		if err == nil && !told {
			err = within(ctx, conn.Ping) // a line that was cut, or is silent, tells nobody
		}
		if err != nil {
			return err
		}
	}
}

// listener returns a connection that listens.
func (db *DB) listener(ctx context.Context) (conn *pgx.Conn, err error) {
	err = within(ctx, func(ctx context.Context) (err error) {
		if conn, err = pgx.ConnectConfig(ctx, db.pool.Config().ConnConfig); err != nil {
			return err
		}
		if _, err = conn.Exec(ctx, `LISTEN `+ChangedChannel); err != nil {
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
	ctx, done := context.WithTimeout(ctx, hintPatience)
	defer done()
	return do(ctx)
}

// drain takes the notifications that are there, and reports whether there were any.
func drain(ctx context.Context, conn *pgx.Conn) (any bool, err error) {
	for {
		more, err := awaitHint(ctx, conn, time.Millisecond)
		if err != nil || !more {
			return any, err
		}
		any = true
	}
}

// awaitHint reports whether a notification came within d.
func awaitHint(ctx context.Context, conn *pgx.Conn, d time.Duration) (bool, error) {
	patient, done := context.WithTimeout(ctx, d)
	defer done()
	_, err := conn.WaitForNotification(patient)
	if patient.Err() != nil && ctx.Err() == nil && !conn.IsClosed() {
		return false, nil
	}
	return err == nil, err
}

// hints are what a process that does not watch says to the one that does. They take no
// connection of their own: there are many such processes.
type hints struct {
	mu     sync.Mutex // guards the rest
	untold bool       // something was written since the last hint
	next   time.Time  // no hint before that
	timer  *time.Timer
	ended  bool // there is no later any more
}

// tell tells who watches that tx, which has ended, has written something, and what could
// not be told before. doubt says that an earlier run of it may have been committed.
func (db *DB) tell(ctx context.Context, tx *Tx, doubt bool) {
	wrote := (tx.committed || doubt) && tx.wrote && !tx.silent
	if w := db.watcher.Load(); w != nil {
		if wrote {
			w.Own()
		}
		return
	}
	if tx.conn.Conn().IsClosed() {
		db.hints.keep(wrote, db.laterHint)
		return
	}
	if db.hints.take(wrote, db.laterHint) {
		hint(ctx, tx.conn)
	}
}

// take reports whether a hint is to be sent now. Else later is called when its time has come.
func (h *hints) take(wrote bool, later func()) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.untold = h.untold || wrote
	wait := time.Until(h.next)
	if h.untold && wait > 0 && h.timer == nil && !h.ended {
		h.timer = time.AfterFunc(wait, later)
	}
	if !h.untold || wait > 0 {
		return false
	}
	h.untold, h.next = false, time.Now().Add(betweenHints)
	return true
}

// hint sends a notification. It is no part of a transaction that writes: who notifies in
// one makes all others wait for its flush to the disk. One that is lost is made good.
func hint(ctx context.Context, conn *pgxpool.Conn) {
	_ = within(context.WithoutCancel(ctx), func(ctx context.Context) error {
		_, err := conn.Conn().PgConn().Exec(ctx, `NOTIFY `+ChangedChannel).ReadAll()
		return err
	})
}

// laterHint sends what waits to be told, where a connection is idle. Otherwise the end of
// what uses them does, or it is tried again.
func (db *DB) laterHint() {
	db.hints.mu.Lock()
	db.hints.timer = nil
	db.hints.mu.Unlock()
	db.idleHint(context.Background())
}

func (db *DB) idleHint(ctx context.Context) {
	idle := db.pool.AcquireAllIdle(ctx)
	switch {
	case len(idle) == 0:
		db.hints.again(db.laterHint)
	case db.hints.take(false, db.laterHint):
		hint(ctx, idle[0])
	}
	for _, conn := range idle {
		conn.Release()
	}
}

// keep leaves it to later to send a hint, where one is due.
func (h *hints) keep(wrote bool, later func()) {
	h.mu.Lock()
	h.untold = h.untold || wrote
	h.mu.Unlock()
	h.again(later)
}

// again has later called a little later, where something waits to be told.
func (h *hints) again(later func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.untold && h.timer == nil && !h.ended {
		h.timer = time.AfterFunc(betweenHints, later)
	}
}

// lastHint sends at once what waits to be told.
func (db *DB) lastHint() {
	h := &db.hints
	h.mu.Lock()
	h.next, h.ended = time.Time{}, true
	if h.timer != nil {
		h.timer.Stop()
	}
	waits := h.untold
	h.mu.Unlock()
	if waits {
		db.idleHint(context.Background())
	}
}
