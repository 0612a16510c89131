package store

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/wait"
	"github.com/spawnmesh/spawnmesh/signing"
)

// Outgoing is a message to send.
type Outgoing struct {
	ID       string
	Conn     string
	Seq      int64
	Queue    string
	Kind     string
	Envelope []byte
	Ahead    bool // it was sealed by a clock that was ahead: the peer refuses it, so it is to be sealed again
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

// fullFor is how long a queue without room is not tried again.
const fullFor = 5 * time.Second

// A Cursor walks the outbox of one connection in the order of the sequence
// numbers. Where it stands is kept in memory only: after a restart everything
// that is open goes out again, and is known by its id where it was received.
//
// Messages of one connection are committed in the order of their numbers,
// because the numbers' row stays locked until the commit: what the cursor has
// passed does not appear behind it. It takes what this process commits from memory, and
// reads the table only where that may have more.
type Cursor struct {
	db     *DB
	conn   string
	handed handed
	doubt  atomic.Bool // a comparison has failed, and may have been committed: what it opened again is not known to be

	// What a heartbeat of the peer says waits for no query of the cursor, which holds mu.
	held      atomic.Pointer[time.Time] // since when nothing is sent again; nil = it is
	soonest   atomic.Pointer[time.Time] // when what is open is sent again at the latest, at the first pause anew; nil = when it is due
	suspended atomic.Bool               // the peer reads nothing that starts work

	mu     sync.Mutex    // guards the rest
	last   int64         // highest number sent, but for those of the rest
	repeat bool          // what is passed now may have been sent before
	oldest int64         // lowest number that was still open at the last resend
	wait   time.Duration // between two resends
	due    time.Time     // of the next resend; zero = nothing that was sent is open
	again  int64         // highest number of the last resend
	turn   int64         // number up to which the turn of resends goes that is under way
	sent   time.Time     // when Next returned something last
	full   time.Time     // until then Next passes over what starts work: the queue has no room for it
	aside  int64         // highest number of the rest that went out meanwhile
}

// NewCursor returns a cursor that stands before everything of connection conn. What this process
// sends over conn is handed to it until it is closed, or there is a newer one.
func (db *DB) NewCursor(conn string) *Cursor {
	c := &Cursor{db: db, conn: conn, wait: resendFirst, handed: handed{pending: wait.NewSignal(), table: true}}
	db.cursors.add(c)
	return c
}

// Close ends what [DB.NewCursor] began.
func (c *Cursor) Close() { c.db.cursors.remove(c) }

// Pending is sent when Next may return something.
func (c *Cursor) Pending() <-chan struct{} { return c.handed.pending }

// Reread has Next read the table where it may not have passed message n yet, which another process
// may have committed.
func (c *Cursor) Reread(n int64) {
	c.mu.Lock()
	behind := c.last < n
	c.mu.Unlock()
	if behind {
		c.handed.reread()
		c.handed.pending.Send()
	}
}

// Forget leaves what was handed over to the table, while nothing can be sent.
func (c *Cursor) Forget() { c.handed.reread() }

// Due is when there is something to do that Pending is not sent for; zero = never.
func (c *Cursor) Due() time.Time {
	if c.handed.mustRead() {
		return time.Now()
	}
	if c.held.Load() != nil {
		return time.Time{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.due
}

var outgoingColumns = fmt.Sprintf(`o.id::text, o.conn::text, o.seq, o.queue, o.kind, o.envelope, o.created_at > clock_timestamp() + interval '%d s'`, signing.Skew/time.Second)

// openMessages are the open messages of connection $1 with numbers from $2 to $3, the first
// $4 of them. Each gap of what is confirmed is looked into by itself, and no further.
const openMessages = `(SELECT o.* FROM unconfirmed u, LATERAL (
		SELECT * FROM outbox WHERE conn = u.conn AND seq >= greatest(u.first, $2::bigint) AND seq < u.below AND seq <= $3::bigint ORDER BY seq LIMIT $4
	) AS o WHERE u.conn = $1 AND u.below > $2::bigint AND u.first <= $3::bigint ORDER BY o.seq LIMIT $4) AS o`

// openControls are those of them that start no work, by their index.
var openControls = strings.Replace(openMessages, "ORDER BY seq LIMIT", "AND queue = '"+commands.QueueControl+"' ORDER BY seq LIMIT", 1)

// RelayBatch is how many messages a cursor returns at most.
const RelayBatch = 256

// Next returns messages that were not sent yet, and moves behind them.
func (c *Cursor) Next(ctx context.Context) ([]Outgoing, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Now().Before(c.full) {
		return c.rest(ctx)
	}
	list, table := c.handed.take()
	list, whole := follows(list, c.last)
	if table || !whole || c.db.cursors.get(c.conn) != c {
		var err error
		if list, err = c.read(ctx); err != nil {
			return nil, err
		}
	}
	if len(list) > 0 {
		c.last = list[len(list)-1].Seq
		c.went()
	}
	return list, nil
}

// went notes that something is sent now. The caller holds mu.
func (c *Cursor) went() {
	if c.sent = time.Now(); c.due.IsZero() {
		c.due = c.sent.Add(c.wait)
	}
}

// highest is the highest number of all that was sent. Behind last that is what went past a queue without room.
func (c *Cursor) highest() int64 { return max(c.last, c.aside) }

// rest returns what comes next of the queues that have room. The caller holds mu.
func (c *Cursor) rest(ctx context.Context) ([]Outgoing, error) {
	list, err := c.open(ctx, c.highest()+1, openControls)
	if len(list) > 0 {
		c.aside = list[len(list)-1].Seq
		c.went()
	}
	return list, err
}

// open reads what is open from a number on.
func (c *Cursor) open(ctx context.Context, from int64, messages string) ([]Outgoing, error) {
	list, err := c.db.outgoing(ctx, `SELECT `+outgoingColumns+` FROM `+messages+` ORDER BY o.seq`, c.conn, from, int64(math.MaxInt64), RelayBatch)
	if c.repeat {
		relabel(list)
	}
	return list, err
}

// read reads what comes next from the table. What was handed over before is in it, or behind
// what is read now. The caller holds mu.
func (c *Cursor) read(ctx context.Context) ([]Outgoing, error) {
	list, err := c.open(ctx, c.last+1, openMessages)
	if c.repeat {
		c.repeat = err != nil || len(list) > 0
	}
	if err != nil || len(list) == RelayBatch || c.repeat {
		c.handed.reread()
	}
	return list, err
}

// Back stands before messages that could not be sent, so that Next returns them
// again.
func (c *Cursor) Back(list []Outgoing) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range list {
		c.aside = min(c.aside, o.Seq-1)
	}
	c.back(list)
}

// back is Back for Next alone. The caller holds mu.
func (c *Cursor) back(list []Outgoing) {
	for _, o := range list {
		c.last = min(c.last, o.Seq-1)
		c.handed.reread()
	}
}

// Full stands before messages that start work, for which their queue has no room, and passes over that queue for a while: it holds up
// no other. All of the other queues up to number through was taken.
func (c *Cursor) Full(list []Outgoing, through int64) {
	if len(list) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.back(list)
	c.full, c.aside = time.Now().Add(fullFor), max(c.aside, through)
}

// Reseal stands before messages that are sealed again. The message server would take them for
// repetitions of what it was sent.
func (c *Cursor) Reseal(list []Outgoing) {
	c.Back(list)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.repeat = true
}

// Restart stands before everything that is open, for a message server that was sent
// nothing yet.
func (c *Cursor) Restart() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last, c.aside, c.repeat, c.full = 0, 0, false, time.Time{}
	c.handed.reread()
}

// Rewind stands before everything that is open: what was sent may be lost, and the message
// server would take it for a repetition.
func (c *Cursor) Rewind() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last, c.aside, c.repeat = 0, 0, true
	c.handed.reread()
	c.handed.pending.Send()
}

// Hold has Again return nothing: the peer's database cannot be asked, so it confirms nothing that it has.
func (c *Cursor) Hold() {
	now := time.Now()
	c.held.CompareAndSwap(nil, &now)
}

// Release ends what [Cursor.Hold] began. Where that was for as long as a first repetition waits, the next one begins at once.
func (c *Cursor) Release() {
	if since := c.held.Swap(nil); since != nil {
		c.begin(since.Add(resendFirst))
	}
}

// Suspend has Again leave out what starts work while the peer reads nothing of it: copies of that would only fill the queue. When it does
// again, the next repetition begins at once.
func (c *Cursor) Suspend(on bool) {
	if c.suspended.Swap(on) && !on {
		c.begin(time.Now())
	}
}

// begin lets what is open be sent again at a time, if it is not before.
func (c *Cursor) begin(at time.Time) {
	c.soonest.Store(&at)
	c.handed.pending.Send()
}

// Again returns messages that were sent a while ago and that the peer's database
// has not confirmed, once their time has come. While the same one stays the oldest it goes through
// all of them by turns: what stays open keeps nothing behind it from coming again.
func (c *Cursor) Again(ctx context.Context) ([]Outgoing, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held.Load() != nil {
		return nil, nil
	}
	if at := c.soonest.Swap(nil); at != nil && at.Before(c.due) {
		c.due, c.wait, c.oldest = *at, resendFirst, 0
	}
	if c.due.IsZero() || time.Now().Before(c.due) {
		return nil, nil
	}
	list, err := c.overdue(ctx)
	if err != nil {
		return nil, err
	}
	relabel(list)
	c.resent(list)
	if len(list) == 0 && time.Since(c.sent) > resendFirst {
		open, err := c.db.outgoing(ctx, `SELECT `+outgoingColumns+` FROM `+openMessages, c.conn, 0, c.highest(), 1) // by a clock that was set back they are new
		if err != nil {
			return nil, err
		}
		if len(open) == 0 {
			c.due = time.Time{}
		}
	}
	return list, nil
}

// overdue returns what is sent again now: the lowest numbers, unless the lowest is the one that it was at the last resend. Then a turn
// goes on behind what was sent last, up to what had been sent when it began, and the next one begins behind the last one: its pauses are
// twice as long.
func (c *Cursor) overdue(ctx context.Context) ([]Outgoing, error) {
	lowest, err := c.overdueIn(ctx, 1, c.highest(), 1)
	if err != nil || len(lowest) == 0 {
		return nil, err
	}
	wait := resendFirst
	if lowest[0].Seq == c.oldest {
		if list, err := c.overdueIn(ctx, c.again+1, c.turn, RelayBatch); err != nil || len(list) > 0 {
			return list, err
		}
		wait = min(2*c.wait, resendMost)
	}
	list, err := c.overdueIn(ctx, 1, c.highest(), RelayBatch)
	if err == nil {
		c.oldest, c.turn, c.wait = lowest[0].Seq, c.highest(), wait
	}
	return list, err
}

// overdueIn reads at most a number of messages from one number to another that were sent a while ago.
func (c *Cursor) overdueIn(ctx context.Context, from, to int64, most int) ([]Outgoing, error) {
	messages := openMessages
	if c.suspended.Load() {
		messages = openControls
	}
	list, err := c.overdueOf(ctx, messages, from, min(to, c.last), most)
	if err != nil || len(list) == most || to <= c.last {
		return list, err
	}
	aside, err := c.overdueOf(ctx, openControls, max(from, c.last+1), to, most-len(list))
	return append(list, aside...), err
}

func (c *Cursor) overdueOf(ctx context.Context, messages string, from, to int64, most int) ([]Outgoing, error) {
	return c.db.outgoing(ctx, `SELECT `+outgoingColumns+` FROM `+messages+` WHERE o.created_at NOT BETWEEN clock_timestamp() - $5::interval AND clock_timestamp() + $6::interval ORDER BY o.seq`,
		c.conn, from, to, most, resendFirst, signing.Skew)
}

// relabel gives copies of messages ids of their own for the message server, which
// would take them for repetitions of what it has lost or handed on already. The
// envelope inside keeps its id.
func relabel(list []Outgoing) {
	for i := range list {
		list[i].ID += ".again" + strconv.FormatInt(time.Now().UnixMilli(), 10)
	}
}

// resent notes where a resend has come to, and sets the time of the next one.
func (c *Cursor) resent(list []Outgoing) {
	if len(list) == 0 {
		c.wait, c.oldest = resendFirst, 0
	} else {
		c.again = list[len(list)-1].Seq
	}
	c.due = time.Now().Add(c.wait)
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
