package messages

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// channel is notified after messages were stored, while somebody listens.
const channel = "spawnmesh_messages"

const (
	listening = time.Minute            // how long a note that this process listens holds
	between   = 15 * time.Second       // looks of who waits without being told
	lingering = 200 * time.Millisecond // for who waits again
)

// An address is whom a message is for: a reader of a workspace, or with "" all of it.
type address struct{ workspace, reader string }

// An ear is of one who waits.
type ear struct {
	address
	told chan struct{} // has one when there may be something
}

// ears are those of one process who wait for messages. One session listens for all of them, while there are some.
type ears struct {
	id string // by which it is noted that this process listens

	mu    sync.Mutex // guards the rest
	all   map[*ear]struct{}
	end   context.CancelFunc
	over  chan struct{} // closed when the session listens no more; nil: none does
	until time.Time     // the note holds
}

func newEars() ears { return ears{id: uuid.NewString(), all: map[*ear]struct{}{}} }

// mostTold is how many bytes a notification has.
const mostTold = 7900

// written is what a notification says of whom messages are for. "" = these are too many to name: everybody looks.
func written(list map[address]bool) string {
	var out strings.Builder
	for a := range list {
		fmt.Fprintf(&out, "%s\t%s\n", a.workspace, a.reader)
		if out.Len() > mostTold {
			return ""
		}
	}
	return out.String()
}

// tell wakes those whom a notification names.
func (e *ears) tell(text string) {
	named := map[address]bool{}
	for line := range strings.Lines(text) {
		workspace, reader, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		named[address{workspace, reader}] = true
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for one := range e.all {
		if text != "" && !named[one.address] && !named[address{one.workspace, ""}] {
			continue
		}
		select {
		case one.told <- struct{}{}:
		default:
		}
	}
}

// Await calls look until it finds something, has failed, or the time until is over: at once, whenever messages for the reader have come,
// and after the time that look says.
func (l *Log) Await(ctx context.Context, workspace, reader string, until time.Time, look func(context.Context) (found bool, again time.Duration, err error)) error {
	if found, _, err := look(ctx); found || err != nil || !time.Now().Before(until) {
		return err
	}
	own := &ear{address{workspace, reader}, make(chan struct{}, 1)}
	l.enter(ctx, own)
	defer l.leave(own)
	for {
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
		case <-own.told:
		case <-again.C:
		case <-ctx.Done():
		}
		again.Stop()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// enter counts somebody who waits. With the first one a session begins to listen.
func (l *Log) enter(ctx context.Context, own *ear) {
	e := &l.ears
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.all[own] = struct{}{}; e.over != nil {
		return
	}
	ctx, e.end = context.WithCancel(context.WithoutCancel(ctx))
	e.over = make(chan struct{})
	go l.listen(ctx, e.over)
}

// leave counts out again. The last one ends the session, unless another one comes soon.
func (l *Log) leave(own *ear) {
	e := &l.ears
	e.mu.Lock()
	defer e.mu.Unlock()
	if delete(e.all, own); len(e.all) == 0 {
		time.AfterFunc(lingering, func() {
			e.mu.Lock()
			defer e.mu.Unlock()
			if len(e.all) == 0 && e.end != nil {
				e.end()
			}
		})
	}
}

// listen tells all who wait when messages have come, until ctx ends. An outage is one more reason to look.
func (l *Log) listen(ctx context.Context, over chan struct{}) {
	e := &l.ears
	for ctx.Err() == nil {
		_ = l.hear(ctx)
		e.tell("")
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
	if len(e.all) > 0 { // somebody has come at this moment
		ctx, e.end = context.WithCancel(context.WithoutCancel(ctx))
		e.over = make(chan struct{})
		go l.listen(ctx, e.over)
	}
}

// hear listens on a session of its own, which it keeps: what waits for an answer of the pool is asked about every few seconds.
func (l *Log) hear(ctx context.Context) error {
	c, err := l.db.Listener(ctx, channel)
	if err != nil {
		return err
	}
	defer func() {
		ctx, done := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer done()
		_ = c.Close(ctx)
	}()
	for {
		if err := l.note(ctx, c); err != nil {
			return err
		}
		l.ears.tell("") // what came before was not told
		for noted := time.Now(); time.Since(noted) < listening/4; {
			patient, done := context.WithTimeout(ctx, listening/4)
			n, err := c.WaitForNotification(patient)
			done()
			switch {
			case ctx.Err() != nil, c.IsClosed():
				return ctx.Err()
			case err == nil:
				l.ears.tell(n.Payload)
			}
		}
	}
}

// note says for a while that this process listens. Whoever stores messages at this moment may not have seen it: they are waited for.
func (l *Log) note(ctx context.Context, c *pgx.Conn) error {
	e := &l.ears
	ctx, done := context.WithTimeout(ctx, listening/2) // a line that is silent is no reason to wait for ever
	defer done()
	if time.Until(e.until) > listening/2 {
		return c.Ping(ctx)
	}
	from := time.Now()
	_, err := c.Exec(ctx, `WITH held AS MATERIALIZED (SELECT FROM message_numbers FOR SHARE), old AS (DELETE FROM message_listeners WHERE until < clock_timestamp() AND id <> $1)
		INSERT INTO message_listeners (id, until) SELECT $1, clock_timestamp() + $2::interval FROM held ON CONFLICT (id) DO UPDATE SET until = excluded.until`, e.id, listening)
	if err == nil {
		e.until = from.Add(listening)
	}
	return err
}
