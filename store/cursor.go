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
	ID   string
	Conn string
	Seq  int64
	Lane string
	Kind string
	Wire []byte
}

// Verb is the last word of the message's kind.
func (o Outgoing) Verb() string { return o.Kind[strings.LastIndexByte(o.Kind, '.')+1:] }

// Resending starts after this long without a confirmation, and slows down to
// once in resendMost while nothing is confirmed.
const (
	resendFirst = 30 * time.Second
	resendMost  = 5 * time.Minute
)

// A Cursor walks the outbox in the order of the sequence numbers. Where it
// stands is kept in memory only: after a restart everything that is open goes
// out again, and is known by its id where it was received.
//
// Messages of one connection are committed in the order of their numbers,
// because the numbers' row stays locked until the commit: what the cursor has
// passed does not appear behind it.
type Cursor struct {
	db *DB
	mu sync.Mutex // guards at
	at map[string]*position
}

// position is how far one connection's messages have been sent.
type position struct {
	last   int64         // highest number sent
	oldest int64         // lowest number that was still open at the last resend
	wait   time.Duration // between two resends
	due    time.Time     // of the next resend
}

// NewCursor returns a cursor that stands before everything.
func (db *DB) NewCursor() *Cursor { return &Cursor{db: db, at: map[string]*position{}} }

func (c *Cursor) position(conn string) *position {
	p := c.at[conn]
	if p == nil {
		p = &position{wait: resendFirst, due: time.Now().Add(resendFirst)}
		c.at[conn] = p
	}
	return p
}

const outgoingColumns = `o.id::text, o.conn::text, o.seq, o.lane, o.kind, o.wire`

// Next returns up to limit messages per connection that were not sent yet, and
// moves behind them.
func (c *Cursor) Next(ctx context.Context, conns []string, limit int) ([]Outgoing, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	after := make([]int64, len(conns))
	for i, conn := range conns {
		after[i] = c.position(conn).last
	}
	list, err := c.db.outgoing(ctx, `
		SELECT o.* FROM unnest($1::uuid[], $2::bigint[]) AS u (conn, after), LATERAL (
			SELECT `+outgoingColumns+` FROM outbox o WHERE o.conn = u.conn AND o.seq > u.after AND o.closed_at IS NULL ORDER BY o.seq LIMIT $3
		) o`, conns, after, limit)
	for _, o := range list {
		c.at[o.Conn].last = o.Seq
	}
	return list, err
}

// Back stands before messages that could not be sent, so that Next returns them
// again.
func (c *Cursor) Back(list []Outgoing) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range list {
		p := c.position(o.Conn)
		p.last = min(p.last, o.Seq-1)
	}
}

// Again returns messages that were sent a while ago and that the peer's database
// has not confirmed, for those of conns whose time has come. Callers name the
// connections whose peer is linked: towards one that is away, the first copy
// still waits on the way.
func (c *Cursor) Again(ctx context.Context, conns []string, limit int) ([]Outgoing, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var due []string
	var upTo []int64
	for _, conn := range conns {
		if p := c.position(conn); time.Now().After(p.due) {
			due, upTo = append(due, conn), append(upTo, p.last)
		}
	}
	if len(due) == 0 {
		return nil, nil
	}
	list, err := c.db.outgoing(ctx, `
		SELECT o.* FROM unnest($1::uuid[], $2::bigint[]) AS u (conn, up_to), LATERAL (
			SELECT `+outgoingColumns+` FROM outbox o WHERE o.conn = u.conn AND o.seq <= u.up_to AND o.closed_at IS NULL
				AND o.created_at < clock_timestamp() - $4::interval ORDER BY o.seq LIMIT $3
		) o`, due, upTo, limit, resendFirst)
	relabel(list)
	oldest := map[string]int64{}
	for _, o := range list {
		if _, seen := oldest[o.Conn]; !seen {
			oldest[o.Conn] = o.Seq
		}
	}
	for _, conn := range due {
		c.at[conn].resent(oldest[conn])
	}
	return list, err
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
func (p *position) resent(oldest int64) {
	if oldest == 0 || oldest != p.oldest {
		p.wait = resendFirst
	} else {
		p.wait = min(2*p.wait, resendMost)
	}
	p.oldest, p.due = oldest, time.Now().Add(p.wait)
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
