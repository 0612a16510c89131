package messages

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
)

// channel is notified after messages were stored, while somebody listens.
const channel = "spawnmesh_messages"

const (
	listening = time.Minute            // how long a note that this process listens holds
	between   = 15 * time.Second       // looks of who waits without being told
	lingering = 200 * time.Millisecond // for who waits again
)

// ears are those of one process who wait for messages. One session listens for all of them, while there are some.
type ears struct {
	id string // by which it is noted that this process listens

	mu    sync.Mutex // guards the rest
	n     int
	told  chan struct{} // closed when there may be something
	end   context.CancelFunc
	over  chan struct{} // closed when the session listens no more; nil: none does
	until time.Time     // the note holds
}

func newEars() ears { return ears{id: uuid.NewString(), told: make(chan struct{})} }

func (e *ears) tell() {
	e.mu.Lock()
	defer e.mu.Unlock()
	close(e.told)
	e.told = make(chan struct{})
}

// next is closed when there may be something that was not there before.
func (e *ears) next() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.told
}

// Await calls look until it finds something, has failed, or the time until is over: at once, whenever messages have come, and after the time that look says.
func (l *Log) Await(ctx context.Context, until time.Time, look func(context.Context) (found bool, again time.Duration, err error)) error {
	if found, _, err := look(ctx); found || err != nil || !time.Now().Before(until) {
		return err
	}
	l.enter(ctx)
	defer l.leave()
	for next := l.ears.next(); ; {
		found, due, err := look(ctx)
		if found || err != nil {
			return err
		}
		left := time.Until(until)
		if left <= 0 {
			return nil
		}
		if due <= 0 {
			due = between
		}
		again := time.NewTimer(min(left, between, due))
		select {
		case <-next:
		case <-again.C:
		case <-ctx.Done():
		}
		again.Stop()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		next = l.ears.next()
	}
}

// enter counts somebody who waits. With the first one a session begins to listen.
func (l *Log) enter(ctx context.Context) {
	e := &l.ears
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.n++; e.over != nil {
		return
	}
	ctx, e.end = context.WithCancel(context.WithoutCancel(ctx))
	e.over = make(chan struct{})
	go l.listen(ctx, e.over)
}

// leave counts out again. The last one ends the session, unless another one comes soon.
func (l *Log) leave() {
	e := &l.ears
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.n--; e.n == 0 {
		time.AfterFunc(lingering, func() {
			e.mu.Lock()
			defer e.mu.Unlock()
			if e.n == 0 && e.end != nil {
				e.end()
			}
		})
	}
}

// listen tells all who wait when messages have come, until ctx ends. An outage is one more reason to look.
func (l *Log) listen(ctx context.Context, over chan struct{}) {
	e := &l.ears
	for ctx.Err() == nil {
		_ = l.db.Read(ctx, "listening for messages", func(_ context.Context, c *pgxpool.Conn) error { return l.hear(ctx, c) })
		e.tell()
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.end()
	e.over, e.end = nil, nil
	close(over)
	if e.n > 0 { // somebody has come at this moment
		ctx, e.end = context.WithCancel(context.WithoutCancel(ctx))
		e.over = make(chan struct{})
		go l.listen(ctx, e.over)
	}
}

// hear listens on one session.
func (l *Log) hear(ctx context.Context, c *pgxpool.Conn) error {
	if _, err := c.Exec(ctx, `LISTEN `+channel); err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	defer func() {
		ctx, done := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer done()
		if _, err := c.Exec(ctx, `UNLISTEN `+channel); err != nil {
			_ = c.Conn().Close(ctx)
		}
	}()
	for {
		if err := l.note(ctx, c); err != nil {
			return err
		}
		l.ears.tell() // what came before was not told
		for noted := time.Now(); time.Since(noted) < listening/4; {
			patient, done := context.WithTimeout(ctx, listening/4)
			err := c.Conn().PgConn().WaitForNotification(patient)
			done()
			switch {
			case ctx.Err() != nil, c.Conn().IsClosed():
				return ctx.Err()
			case err == nil:
				l.ears.tell()
			}
		}
	}
}

// note says for a while that this process listens. Whoever stores messages at this moment may not have seen it: they are waited for.
func (l *Log) note(ctx context.Context, c *pgxpool.Conn) error {
	e := &l.ears
	if time.Until(e.until) > listening/2 {
		return nil
	}
	from := time.Now()
	_, err := c.Exec(ctx, `WITH held AS MATERIALIZED (SELECT FROM message_numbers FOR SHARE), old AS (DELETE FROM message_listeners WHERE until < clock_timestamp() AND id <> $1)
		INSERT INTO message_listeners (id, until) SELECT $1, clock_timestamp() + $2::interval FROM held ON CONFLICT (id) DO UPDATE SET until = excluded.until`, e.id, listening)
	if err == nil {
		e.until = from.Add(listening)
	}
	return err
}
