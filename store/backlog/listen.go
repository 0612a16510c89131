package backlog

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// listeners are those of one process who wait for tasks that become claimable. One of them at a time
// has a connection for that, and tells the others.
type listeners struct {
	ear chan struct{} // holds one: whoever has put it there listens, and has what follows to itself
	id  string        // that they are noted by
	at  time.Time     // when it was last noted that they wait

	mu   sync.Mutex // guards the rest
	n    int
	told chan struct{} // closed when there may be something
}

func newListeners() *listeners {
	return &listeners{ear: make(chan struct{}, 1), id: uuid.NewString(), told: make(chan struct{})}
}

// add counts n more, and returns how many there are and what they wait for.
func (w *listeners) add(n int) (all int, told chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.n += n
	return w.n, w.told
}

func (w *listeners) tell() {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.told)
	w.told = make(chan struct{})
}

// A Listener is told when tasks become claimable.
type Listener struct {
	b    *Backlog
	told chan struct{} // since it last looked
}

// listening is how long a note that somebody waits holds.
const listening = time.Minute

// Listen starts to wait for tasks that become claimable. The caller looks once
// more after it: what came before is not told.
func (ws *Workspace) Listen(ctx context.Context) (*Listener, error) {
	l := &Listener{b: ws.backlog}
	_, l.told = l.b.listeners.add(1)
	select {
	case l.b.listeners.ear <- struct{}{}:
		if err := l.listen(ctx, 0); err != nil {
			l.Close()
			return nil, err
		}
	default: // somebody does, or tells when he has begun
	}
	return l, nil
}

// Wait returns when tasks may have become claimable, and after d at the latest.
// It connects again after an outage. While it waits it has one connection, or none where another
// one of this process has it, which is free for the claim in between.
func (l *Listener) Wait(ctx context.Context, d time.Duration) (err error) {
	over := time.NewTimer(d)
	defer over.Stop()
	select {
	case l.b.listeners.ear <- struct{}{}:
		err = l.listen(ctx, d)
	case <-l.told:
	case <-over.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	_, l.told = l.b.listeners.add(0)
	return err
}

// listen waits for all, and gives up the ear.
func (l *Listener) listen(ctx context.Context, d time.Duration) error {
	defer func() { <-l.b.listeners.ear }()
	select {
	case <-l.told: // whoever had the ear before has told it
		return nil
	default:
	}
	defer l.b.listeners.tell()
	return l.b.db.Await(ctx, "waiting for claimable tasks", readyChannel, d, l.b.listeners.note)
}

func (w *listeners) note(ctx context.Context, conn *pgx.Conn) error {
	if time.Since(w.at) < listening/2 {
		return nil
	}
	_, err := conn.Exec(ctx, `INSERT INTO listeners (id, until) VALUES ($1, now() + $2::interval) ON CONFLICT (id) DO UPDATE SET until = excluded.until`, w.id, listening)
	if err != nil {
		return fmt.Errorf("noting that a claimer waits: %w", err)
	}
	w.at = time.Now()
	return nil
}

// Close ends the waiting.
func (l *Listener) Close() {
	w := l.b.listeners
	if n, _ := w.add(-1); n > 0 {
		return
	}
	select {
	case w.ear <- struct{}{}:
		defer func() { <-w.ear }()
	default: // somebody has begun since then
		return
	}
	if n, _ := w.add(0); n > 0 {
		return
	}
	ctx, done := context.WithTimeout(context.Background(), time.Second)
	defer done()
	w.at = time.Time{}
	_ = l.b.db.Read(ctx, "ending the wait", func(ctx context.Context, conn *pgxpool.Conn) error {
		_, err := conn.Exec(ctx, `DELETE FROM listeners WHERE id = $1`, w.id) // it ends by itself within a minute
		return err
	})
}
