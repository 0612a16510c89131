package store

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// A notifier is when a process that does not watch notifies the one that does. It has no
// session of its own, because there are many such processes: it uses the session of the
// commit, or later an idle one.
type notifier struct {
	mu     sync.Mutex // guards the rest
	unsent bool       // something was committed since the last notification
	next   time.Time  // no notification before that
	timer  *time.Timer
	closed bool // nothing is sent later any more
}

// announce says that tx, which has ended, may have committed something: to the watcher of this process,
// or by a notification to that of another one. doubt says that an earlier run of tx may be committed.
func (db *DB) announce(ctx context.Context, tx *Tx, doubt bool) {
	wrote := (tx.committed || doubt) && tx.wrote && !tx.silent
	if w := db.watcher.Load(); w != nil {
		if wrote {
			w.Changed(ByThis)
		}
		return
	}
	if tx.conn.Conn().IsClosed() {
		db.notifier.note(wrote)
		db.notifier.retry(db.notifyLater)
		return
	}
	if db.notifier.note(wrote); db.notifier.due(db.notifyLater) {
		db.notifyOn(ctx, tx.conn)
	}
}

// announceAgain says that something is committed of which it was said before that it may be:
// who looked then may have been too early to see it.
func (db *DB) announceAgain(wrote bool) {
	if w := db.watcher.Load(); w != nil && wrote {
		w.Changed(ByThis)
		return
	}
	db.notifier.note(wrote)
	db.notifier.retry(db.notifyLater)
}

// note remembers that something was committed.
func (n *notifier) note(wrote bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.unsent = n.unsent || wrote
}

// due reports whether a notification is to be sent now. Where it is too early, later is
// called when it is not.
func (n *notifier) due(later func()) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	wait := time.Until(n.next)
	if n.unsent && wait > 0 {
		n.schedule(wait, later)
	}
	if !n.unsent || wait > 0 {
		return false
	}
	n.unsent, n.next = false, time.Now().Add(betweenNotifications)
	return true
}

// retry has later called in a while, where something is unsent.
func (n *notifier) retry(later func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.unsent {
		n.schedule(betweenNotifications, later)
	}
}

// schedule has later called once. The caller holds mu.
func (n *notifier) schedule(wait time.Duration, later func()) {
	if n.timer == nil && !n.closed {
		n.timer = time.AfterFunc(wait, later)
	}
}

// notifyOn notifies, and tries again later where the session is broken.
func (db *DB) notifyOn(ctx context.Context, conn *pgxpool.Conn) {
	if notify(ctx, conn) != nil {
		db.notifier.note(true)
		db.notifier.retry(db.notifyLater)
	}
}

// notify is no part of a transaction that writes: who notifies in one makes all others wait
// for its flush to the disk. A notification that is lost is made good by [Watcher].
func notify(ctx context.Context, conn *pgxpool.Conn) error {
	return within(context.WithoutCancel(ctx), func(ctx context.Context) error {
		_, err := conn.Conn().PgConn().Exec(ctx, `NOTIFY `+ChangedChannel).ReadAll()
		return err
	})
}

// notifyLater sends what is unsent, where a session is idle. Otherwise the next commit
// does, or it is tried again.
func (db *DB) notifyLater() {
	db.notifier.mu.Lock()
	db.notifier.timer = nil
	db.notifier.mu.Unlock()
	db.notifyIdle(context.Background())
}

func (db *DB) notifyIdle(ctx context.Context) {
	idle := db.pool.AcquireAllIdle(ctx)
	switch {
	case len(idle) == 0:
		db.notifier.retry(db.notifyLater)
	case db.notifier.due(db.notifyLater):
		db.notifyOn(ctx, idle[0])
	}
	for _, conn := range idle {
		conn.Release()
	}
}

// notifyLast sends at once what is unsent, and nothing later.
func (db *DB) notifyLast() {
	n := &db.notifier
	n.mu.Lock()
	n.next, n.closed = time.Time{}, true
	if n.timer != nil {
		n.timer.Stop()
	}
	unsent := n.unsent
	n.mu.Unlock()
	if unsent {
		db.notifyIdle(context.Background())
	}
}
