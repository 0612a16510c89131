package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
)

// The lanes a message can take: two from hub to spoke, two back.
const (
	LaneRun = "run" // spawns
	LaneCtl = "ctl" // kill and status: not behind any spawn
	LaneEvt = "evt" // receipts
	LaneRes = "res" // results
)

// workspace is the only workspace of this version's messages.
const workspace = "main"

// AnswerLife is how long receipts and results stay acceptable.
const AnswerLife = 30 * 24 * time.Hour

// A draft is a message that the current transaction decides to send.
type draft struct {
	conn string
	lane string
	task string
	body commands.Body
	re   *signing.Ref
	life time.Duration
}

type numbered struct {
	first int64
	peer  signing.InstanceID
	epoch int64
	now   time.Time
}

// put seals drafts and adds them to the outbox, in the caller's transaction.
// It takes the sequence rows' locks last of all, in the order of the ids, so
// that transactions over several connections never wait in a circle.
func (db *DB) put(ctx context.Context, tx pgx.Tx, drafts []draft) ([]signing.Sealed, error) {
	sealed, err := db.seal(ctx, tx, drafts)
	if err != nil || len(sealed) == 0 {
		return nil, err
	}
	rows := &outboxRows{}
	for i, s := range sealed {
		rows.add(drafts[i], s)
	}
	_, err = tx.Exec(ctx, `
		INSERT INTO outbox (id, conn, seq, lane, kind, digest, re, task, exp, wire)
		SELECT a, b, c, d, e, f, nullif(g, '')::uuid, nullif(h, '')::uuid, i, j
		FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::text[], $5::text[], $6::bytea[], $7::text[], $8::text[], $9::timestamptz[], $10::bytea[])
			AS u (a, b, c, d, e, f, g, h, i, j)`,
		rows.id, rows.conn, rows.seq, rows.lane, rows.kind, rows.digest, rows.re, rows.task, rows.exp, rows.wire)
	if err != nil {
		return nil, fmt.Errorf("filling the outbox: %w", err)
	}
	return sealed, nil
}

type outboxRows struct {
	id, conn, lane, kind, re, task []string
	seq                            []int64
	exp                            []time.Time
	digest, wire                   [][]byte
}

func (r *outboxRows) add(d draft, s signing.Sealed) {
	re := ""
	if d.re != nil {
		re = d.re.ID
	}
	r.id, r.conn, r.seq = append(r.id, s.ID), append(r.conn, d.conn), append(r.seq, s.Seq)
	r.lane, r.kind = append(r.lane, d.lane), append(r.kind, string(d.body.Kind()))
	r.digest, r.re, r.task = append(r.digest, s.Digest[:]), append(r.re, re), append(r.task, d.task)
	r.exp, r.wire = append(r.exp, s.Exp), append(r.wire, s.Wire)
}

// seal numbers and signs drafts without storing them.
func (db *DB) seal(ctx context.Context, tx pgx.Tx, drafts []draft) ([]signing.Sealed, error) {
	count := map[string]int64{}
	for _, d := range drafts {
		count[d.conn]++
	}
	conns := make([]string, 0, len(count))
	for conn := range count {
		conns = append(conns, conn)
	}
	slices.Sort(conns)
	next := map[string]*numbered{}
	for _, conn := range conns {
		n := &numbered{}
		err := tx.QueryRow(ctx, `UPDATE sequences s SET last = s.last + $2 FROM connections c
			WHERE s.conn = $1 AND c.id = s.conn RETURNING s.last - $2 + 1, c.peer, c.epoch, clock_timestamp()`,
			conn, count[conn]).Scan(&n.first, &n.peer, &n.epoch, &n.now)
		if err != nil {
			return nil, fmt.Errorf("numbering messages of connection %s: %w", conn, err)
		}
		next[conn] = n
	}
	sealed := make([]signing.Sealed, len(drafts))
	for i, d := range drafts {
		s, err := db.sealOne(d, next[d.conn])
		if err != nil {
			return nil, err
		}
		sealed[i] = s
	}
	return sealed, nil
}

func (db *DB) sealOne(d draft, n *numbered) (signing.Sealed, error) {
	body, err := signing.EncodeBody(d.body)
	if err != nil {
		return signing.Sealed{}, fmt.Errorf("encoding a %s body: %w", d.body.Kind(), err)
	}
	id, err := uuid.NewV7()
	if err != nil {
		return signing.Sealed{}, err
	}
	h := signing.Header{ID: id.String(), Kind: string(d.body.Kind()), Iss: db.self, Aud: n.peer, Conn: d.conn,
		Epoch: n.epoch, Seq: n.first, Iat: n.now.UnixMilli(), Exp: n.now.Add(d.life).UnixMilli(), Wsp: workspace, Re: d.re}
	n.first++
	return db.signer.Seal(commands.Types[d.body.Kind()], h, body)
}

// Notes signs one message per connection that is not kept: it may be lost,
// because what it answers will come again.
func (db *DB) notes(ctx context.Context, tx pgx.Tx, drafts []draft) ([]Outgoing, error) {
	sealed, err := db.seal(ctx, tx, drafts)
	if err != nil {
		return nil, err
	}
	out := make([]Outgoing, len(sealed))
	for i, s := range sealed {
		out[i] = Outgoing{ID: s.ID, Conn: drafts[i].conn, Lane: drafts[i].lane, Kind: string(drafts[i].body.Kind()), Wire: s.Wire}
	}
	return out, nil
}

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

// closeOut closes messages that the peer of conn says it has stored. The
// comparison of conn is written so that only the primary key's index fits.
func closeOut(ctx context.Context, tx pgx.Tx, conns, ids, digests []string) error {
	if len(ids) == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, `
		UPDATE outbox o SET closed_at = clock_timestamp()
		FROM unnest($1::uuid[], $2::uuid[], $3::text[]) AS u (conn, id, digest)
		WHERE o.id = u.id AND (o.conn = u.conn) IS TRUE AND o.closed_at IS NULL AND encode(o.digest, 'hex') = u.digest`, conns, ids, digests)
	if err != nil {
		return fmt.Errorf("closing the outbox: %w", err)
	}
	return nil
}

// answersTo returns the stored answers to commands that came again: they go out
// again, and if they are lost the command will come once more.
func answersTo(ctx context.Context, tx pgx.Tx, conns, re []string) ([]Outgoing, error) {
	if len(re) == 0 {
		return nil, nil
	}
	rows, err := tx.Query(ctx, `SELECT `+outgoingColumns+` FROM unnest($1::uuid[], $2::uuid[]) AS u (conn, re) JOIN outbox o ON o.conn = u.conn AND o.re = u.re ORDER BY o.seq`, conns, re)
	if err != nil {
		return nil, fmt.Errorf("reading stored answers: %w", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Outgoing])
	if err != nil {
		return nil, fmt.Errorf("reading stored answers: %w", err)
	}
	return list, nil
}

// OutboxCounts says how many messages of each connection wait for confirmation.
func (db *DB) OutboxCounts(ctx context.Context) (map[string]int, error) {
	rows, err := db.pool.Query(ctx, `SELECT conn::text, count(*) FROM outbox WHERE closed_at IS NULL GROUP BY conn`)
	if err != nil {
		return nil, fmt.Errorf("counting the outbox: %w", err)
	}
	counts, conn, n := map[string]int{}, "", 0
	_, err = pgx.ForEachRow(rows, []any{&conn, &n}, func() error { counts[conn] = n; return nil })
	return counts, err
}
