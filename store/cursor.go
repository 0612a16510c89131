package store

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// Outgoing is a message to send.
type Outgoing struct {
	ID       string
	Conn     string
	Seq      int64
	Queue    string
	Kind     string
	Envelope []byte
}

// Verb is the last word of the message's kind, as a token of a subject.
func (o Outgoing) Verb() string {
	return strings.ReplaceAll(o.Kind[strings.LastIndexByte(o.Kind, '.')+1:], "_", "-")
}

// Resending starts after this long without a confirmation, and slows down to
// once in resendMost while nothing is confirmed.
const (
	resendFirst = 30 * time.Second
	resendMost  = 5 * time.Minute
)

// A Cursor walks the outbox of one connection in the order of the sequence
// numbers. Where it stands is kept in memory only: after a restart everything
// that is open goes out again, and is known by its id where it was received.
//
// Messages of one connection are committed in the order of their numbers,
// because the numbers' row stays locked until the commit: what the cursor has
// passed does not appear behind it.
type Cursor struct {
	db   *DB
	conn string

	mu     sync.Mutex    // guards the rest
	last   int64         // highest number sent
	repeat bool          // what is passed now may have been sent before
	oldest int64         // lowest number that was still open at the last resend
	wait   time.Duration // between two resends
	due    time.Time     // of the next resend
}

// NewCursor returns a cursor that stands before everything of connection conn.
func (db *DB) NewCursor(conn string) *Cursor {
	return &Cursor{db: db, conn: conn, wait: resendFirst, due: time.Now().Add(resendFirst)}
}

const outgoingColumns = `o.id::text, o.conn::text, o.seq, o.queue, o.kind, o.envelope`

// RelayBatch is how many messages a cursor returns at most.
const RelayBatch = 256

// Next returns messages that were not sent yet, and moves behind them.
func (c *Cursor) Next(ctx context.Context) ([]Outgoing, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	list, err := c.db.outgoing(ctx, `SELECT `+outgoingColumns+` FROM outbox o WHERE o.conn = $1 AND o.seq > $2 AND o.closed_at IS NULL ORDER BY o.seq LIMIT $3`,
		c.conn, c.last, RelayBatch)
	if c.repeat {
		relabel(list)
	}
	if len(list) > 0 {
		c.last = list[len(list)-1].Seq
	} else if err == nil {
		c.repeat = false
	}
	return list, err
}

// Back stands before messages that could not be sent, so that Next returns them
// again.
func (c *Cursor) Back(list []Outgoing) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range list {
		c.last = min(c.last, o.Seq-1)
	}
}

// Restart stands before everything that is open, for a message server that was sent
// nothing yet.
func (c *Cursor) Restart() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last, c.repeat = 0, false
}

// Rewind stands before everything that is open: what was sent may be lost, and the message
// server would take it for a repetition.
func (c *Cursor) Rewind() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last, c.repeat = 0, true
}

// Again returns messages that were sent a while ago and that the peer's database
// has not confirmed, once their time has come.
func (c *Cursor) Again(ctx context.Context) ([]Outgoing, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Now().Before(c.due) {
		return nil, nil
	}
	list, err := c.db.outgoing(ctx, `SELECT `+outgoingColumns+` FROM outbox o WHERE o.conn = $1 AND o.seq <= $2 AND o.closed_at IS NULL
		AND o.created_at < clock_timestamp() - $4::interval ORDER BY o.seq LIMIT $3`, c.conn, c.last, RelayBatch, resendFirst)
	if err != nil {
		return nil, err
	}
	relabel(list)
	oldest := int64(0)
	if len(list) > 0 {
		oldest = list[0].Seq
	}
	c.resent(oldest)
	return list, nil
}

// Due is in how long [Cursor.Again] has to be asked.
func (c *Cursor) Due() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Until(c.due)
}

// relabel gives copies of messages ids of their own for the message server, which
// would take them for repetitions of what it has lost or handed on already. The
// envelope inside keeps its id.
func relabel(list []Outgoing) {
	for i := range list {
		list[i].ID += ".again" + strconv.FormatInt(time.Now().UnixMilli(), 10)
	}
}

// resent sets the time of the next resend: later and later while the same
// message stays the oldest.
func (c *Cursor) resent(oldest int64) {
	if oldest == 0 || oldest != c.oldest {
		c.wait = resendFirst
	} else {
		c.wait = min(2*c.wait, resendMost)
	}
	c.oldest, c.due = oldest, time.Now().Add(c.wait)
}

func (db *DB) outgoing(ctx context.Context, sql string, args ...any) ([]Outgoing, error) {
	rows, err := db.pool.Query(ctx, sql, args...)
	if err != nil {
		return nil, fmt.Errorf("reading the outbox: %w", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Outgoing])
	if err != nil {
		return nil, fmt.Errorf("reading the outbox: %w", err)
	}
	return list, nil
}
