package transfer

import (
	"cmp"
	"context"
	"time"

	"github.com/spawnmesh/spawnmesh/federation/transport"
	"github.com/spawnmesh/spawnmesh/internal/wait"
)

const delayFirst = 50 * time.Millisecond // between two tries; it doubles

func (t *Transfers) longest() time.Duration { return cmp.Or(t.Longest, 15*time.Second) }

// A line is the connection for blobs with one hub, open or not.
type line struct {
	t     *Transfers
	conn  string
	users int         // guarded by mu of t
	idle  *time.Timer // closes it when nobody has used it for a while

	// Who has received from turn has what follows, and gives turn back.
	turn  chan struct{}
	c     *transport.BlobConn // nil = it is not open
	delay time.Duration       // before the next dial
	after time.Time           // of the next dial
}

// use returns the line of a connection for one more user. The caller holds mu.
func (t *Transfers) use(conn string) *line {
	l := t.lines[conn]
	if l == nil {
		l = &line{t: t, conn: conn, turn: make(chan struct{}, 1)}
		l.turn <- struct{}{}
		l.idle = time.AfterFunc(time.Hour, l.expire)
		t.lines[conn] = l
	}
	l.idle.Stop()
	l.users++
	return l
}

// leave is for who has used l. The caller holds mu.
func (t *Transfers) leave(l *line) {
	if l.users--; l.users == 0 {
		l.idle.Reset(cmp.Or(t.Idle, 10*time.Second))
	}
}

// expire forgets a line that nobody uses.
func (l *line) expire() {
	l.t.mu.Lock()
	over := l.users == 0 && l.t.lines[l.conn] == l
	if over {
		delete(l.t.lines, l.conn)
	}
	l.t.mu.Unlock()
	if over {
		l.close()
	}
}

// close ends the connection. The caller has the turn, or nobody uses the line.
func (l *line) close() {
	if l.c != nil {
		l.c.Close()
	}
}

// An early is the error for a connection that is not to be opened yet.
type early struct{ until time.Time }

func (e *early) Error() string { return "connecting for blobs: it failed a moment ago" }

// open returns the connection, which it opens where there is none; before its time that is an [early].
func (l *line) open(ctx context.Context) (*transport.BlobConn, error) {
	select {
	case <-l.turn:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { l.turn <- struct{}{} }()
	if l.c != nil {
		return l.c, nil
	}
	if time.Now().Before(l.after) {
		return nil, &early{l.after}
	}
	c, err := l.t.Dial(ctx, l.conn)
	if err != nil {
		l.later()
		return nil, err
	}
	l.c = c
	return c, nil
}

// broke ends a connection that failed. The next one waits the longer, the less the last ones have carried.
func (l *line) broke(c *transport.BlobConn, carried bool) {
	<-l.turn
	defer func() { l.turn <- struct{}{} }()
	if l.c != c {
		return
	}
	c.Close()
	l.c = nil
	if carried {
		l.delay = 0
	}
	l.later()
}

// later puts off the next dial. The caller has the turn.
func (l *line) later() {
	l.delay = min(max(2*l.delay, delayFirst), l.t.longest())
	l.after = time.Now().Add(wait.Spread(l.delay))
}
