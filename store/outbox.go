package store

import (
	"context"
	"fmt"
	"slices"
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
	relabel(list)
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
