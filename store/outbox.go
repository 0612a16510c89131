package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
)

// Workspace is the only workspace of this version's messages.
const Workspace = "main"

// AnswerLife is how long receipts and results stay acceptable.
const AnswerLife = 30 * 24 * time.Hour

// A Draft is a message that a transaction decides to send.
type Draft struct {
	Conn  string
	Queue string // "" = that of its kind
	Body  commands.Body
	Re    *signing.Ref  // what it answers; nil for none
	Life  time.Duration // how long it stays acceptable; 0 means [AnswerLife]

	id string
}

// Send queues a message and returns its id. It is numbered, signed and stored
// at the end of the transaction, together with all that it sends: sequences are locked last of all, in the order
// of the connections' ids, so that transactions over several connections never
// wait in a circle.
func (tx *Tx) Send(m Draft) (id string) {
	m.id = newMessageID()
	tx.drafts = append(tx.drafts, m)
	return m.id
}

// SendNow numbers and signs messages at once, for callers that keep what was
// signed. It locks the row of the connection in sequences until the end of the
// transaction. That lock comes last in the lock order: after SendNow the transaction
// must not lock rows that other transactions lock before they send, or both deadlock.
// The messages are stored at its end.
func (tx *Tx) SendNow(ctx context.Context, list ...Draft) ([]signing.Sealed, error) {
	for i := range list {
		if list[i].id == "" { // else its body is bound to the id
			list[i].id = newMessageID()
		}
	}
	var b pgx.Batch
	if tx.number(&b, list) {
		if err := tx.SendBatch(ctx, &b).Close(); err != nil {
			return nil, err
		}
	}
	return tx.sealNow(list)
}

// numbered are the numbers of a connection that are a transaction's already, and what
// else sealing needs.
type numbered struct {
	first int64
	left  int64
	peer  signing.InstanceID
	epoch int64
	now   time.Time
	kid   signing.KeyID // signs towards this peer
}

// Reserve numbers so many messages to a connection behind what [Tx.Flush] sends next,
// before it is known how many there are to be: sealing them then costs no round trip.
// What is left over is given back at the end. As with [Tx.SendNow], nothing that other
// transactions lock before they send may be locked after it.
func (tx *Tx) Reserve(conn string, messages int) {
	if tx.reserved == nil {
		tx.reserved = map[string]int{}
	}
	tx.reserved[conn] += messages
}

// queueReserved queues the taking of reserved numbers.
func (tx *Tx) queueReserved() {
	for _, conn := range slices.Sorted(maps.Keys(tx.reserved)) {
		tx.take(&tx.queued, conn, int64(tx.reserved[conn]))
	}
	tx.reserved = nil
}

// number queues what is missing for drafts of their numbers, and reports whether
// anything was.
func (tx *Tx) number(b *pgx.Batch, drafts []Draft) bool {
	missing, any := map[string]int64{}, false
	for _, d := range drafts {
		missing[d.Conn]++
	}
	for _, conn := range slices.Sorted(maps.Keys(missing)) {
		if n := tx.next[conn]; n != nil {
			missing[conn] -= n.left
		}
		if missing[conn] > 0 {
			tx.take(b, conn, missing[conn])
			any = true
		}
	}
	return any
}

// take queues the taking of count numbers. They follow those that the transaction has:
// it holds the row.
func (tx *Tx) take(b *pgx.Batch, conn string, count int64) {
	b.Queue(`UPDATE sequences s SET last = s.last + $2 FROM connections c
		WHERE s.conn = $1 AND c.id = s.conn AND NOT has_ended(c.state) RETURNING s.last - $2 + 1, c.peer, c.epoch, clock_timestamp(), s.kid`,
		conn, count).QueryRow(func(row pgx.Row) error {
		n := &numbered{left: count}
		err := row.Scan(&n.first, &n.peer, &n.epoch, &n.now, &n.kid)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil // it has ended: nobody is told any more
		}
		if err != nil {
			return fmt.Errorf("numbering messages of connection %s: %w", conn, err)
		}
		if had := tx.next[conn]; had != nil {
			n.first, n.left = n.first-had.left, n.left+had.left
		}
		if tx.next == nil {
			tx.next = map[string]*numbered{}
		}
		tx.next[conn] = n
		return nil
	})
}

// giveBack queues the return of numbers that were not needed: nobody has seen them.
func (tx *Tx) giveBack(b *pgx.Batch) {
	for _, conn := range slices.Sorted(maps.Keys(tx.next)) {
		if left := tx.next[conn].left; left > 0 {
			b.Queue(`UPDATE sequences SET last = last - $2 WHERE conn = $1`, conn, left)
		}
	}
}

// sealNow signs drafts with numbers of the transaction, together. What goes to a
// connection that has ended stays empty and is not kept.
func (tx *Tx) sealNow(drafts []Draft) ([]signing.Sealed, error) {
	sealed, err := tx.db.sealTogether(drafts, tx.next)
	if err == nil {
		tx.keep(drafts, sealed)
	}
	return sealed, err
}

// keep adds sealed drafts to what is stored at the end.
func (tx *Tx) keep(drafts []Draft, sealed []signing.Sealed) {
	for i, s := range sealed {
		if s.ID != "" {
			tx.sealed.add(drafts[i], s)
		}
	}
}

type outboxRows struct {
	id, conn, queue, kind, re, task []string
	seq                             []int64
	exp                             []time.Time
	digest, body, envelope          [][]byte
}

func (r *outboxRows) add(d Draft, s signing.Sealed) {
	re := ""
	if d.Re != nil {
		re = d.Re.ID
	}
	r.id, r.conn, r.seq = append(r.id, s.ID), append(r.conn, d.Conn), append(r.seq, s.Seq)
	r.queue, r.kind = append(r.queue, cmp.Or(d.Queue, d.Body.Kind().Queue())), append(r.kind, string(d.Body.Kind()))
	r.digest, r.body = append(r.digest, s.Digest[:]), append(r.body, s.Body[:])
	r.re, r.task = append(r.re, re), append(r.task, d.Body.TaskID())
	r.exp, r.envelope = append(r.exp, s.Exp), append(r.envelope, s.Envelope)
}

// insert queues the insertion of the rows.
func (r *outboxRows) insert(b *pgx.Batch) {
	if len(r.id) == 0 {
		return
	}
	b.Queue(`
		INSERT INTO outbox (id, conn, seq, queue, kind, digest, re, task, exp, envelope, body)
		SELECT a, b, c, d, e, f, nullif(g, '')::uuid, nullif(h, '')::uuid, i, j, k
		FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::text[], $5::text[], $6::bytea[], $7::text[], $8::text[], $9::timestamptz[], $10::bytea[], $11::bytea[])
			AS u (a, b, c, d, e, f, g, h, i, j, k)`,
		r.id, r.conn, r.seq, r.queue, r.kind, r.digest, r.re, r.task, r.exp, r.envelope, r.body)
}

// addAnswered adds the numbers of messages with ids $2 and digests $4 of bodies to what the peer of
// connection $1 has confirmed, up to $3 ranges. The comparison of conn is written so that only the index
// of ids fits.
var addAnswered = func() string {
	sets, where := addition(`answered.numbers`)
	return `
		UPDATE confirmed c SET ` + sets + ` FROM (
			SELECT range_agg(int8range(o.seq, o.seq + 1)) AS numbers FROM unnest($2::uuid[], $4::text[]) AS u (id, body)
			JOIN outbox o ON o.id = u.id AND (o.conn = $1) IS TRUE AND encode(o.body, 'hex') = u.body
		) AS answered
		WHERE c.conn = $1 AND ` + where
}()

// closeOut queues the closing of messages that the peer of conn says it has stored.
func closeOut(tx *Tx, conn string, ids, bodies []string) {
	if len(ids) > 0 {
		tx.Queue(addAnswered, conn, ids, maxConfirmed, bodies)
	}
}

// answersTo returns the stored answers to commands that came again: they go out
// again, and if they are lost the command will come once more.
func answersTo(ctx context.Context, tx *Tx, conns, re []string) ([]Outgoing, error) {
	if len(re) == 0 {
		return nil, nil
	}
	rows, err := tx.Query(ctx, `SELECT `+outgoingColumns+` FROM unnest($1::uuid[], $2::uuid[]) AS u (conn, re) JOIN outbox o ON o.re = u.re AND (o.conn = u.conn) IS TRUE ORDER BY o.seq`, conns, re)
	if err != nil {
		return nil, fmt.Errorf("reading stored answers: %w", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Outgoing])
	if err != nil {
		return nil, fmt.Errorf("reading stored answers: %w", err)
	}
	relabel(list)
	return list, nil
}

// OutboxCounts says how many messages of each connection wait for confirmation.
func (db *DB) OutboxCounts(ctx context.Context) (map[string]int, error) {
	rows, err := db.pool.Query(ctx, `SELECT conn::text, count(*) FROM open_outbox GROUP BY conn`)
	if err != nil {
		return nil, fmt.Errorf("counting the outbox: %w", err)
	}
	counts, conn, n := map[string]int{}, "", 0
	_, err = pgx.ForEachRow(rows, []any{&conn, &n}, func() error { counts[conn] = n; return nil })
	return counts, err
}
