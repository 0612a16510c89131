package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/signing"
)

// classify says of a message that was not new what it repeats. One that was sealed anew,
// under a higher number or for a clock that had been ahead, takes the place of the old one: its sender knows that no more. Of
// one that left no bytes, as it was refused or is old, there is nothing to compare it with, and
// nothing that it could change.
func (t *taking) classify(ctx context.Context, m *Incoming) error {
	var seq int64
	var digest, envelope []byte
	err := t.tx.QueryRow(ctx, `SELECT seq, digest, envelope FROM inbox WHERE conn = $1 AND id = $2`, m.Conn, m.Header.ID).Scan(&seq, &digest, &envelope)
	switch {
	case err == nil && bytes.Equal(digest, m.Digest[:]):
		t.repeat(m)
		return nil
	case err == nil && (len(envelope) == 0 || m.Header.SealedAnew(m.Envelope, envelope)):
		if m.Header.Seq > seq || m.Header.Seq == seq && m.Header.IssuedBefore(envelope) {
			return t.replace(ctx, m, len(envelope))
		}
		t.repeat(m) // what it was before
		return nil
	case err == nil:
		m.Code, m.Why = signing.ReplayDiff, "message id was already used with other content"
	case errors.Is(err, pgx.ErrNoRows):
		t.reuse(m)
	default:
		return fmt.Errorf("looking up message %s: %w", m.Header.ID, err)
	}
	return nil
}

func (t *taking) repeat(m *Incoming) {
	m.Code, m.Why = signing.ReplaySame, "the same message again"
	t.repeats.conns, t.repeats.ids = append(t.repeats.conns, m.Conn), append(t.repeats.ids, m.Header.ID)
}

func (t *taking) reuse(m *Incoming) {
	m.Code, m.Why = signing.SeqReuse, fmt.Sprintf("sequence %d was already used with other content; was a backup restored?", m.Header.Seq)
	t.reused = max(t.reused, m.Header.Seq)
}

// replace stores the new seal of a message in place of the old one, which has so many bytes.
func (t *taking) replace(ctx context.Context, m *Incoming, was int) error {
	var left int // of its bytes
	err := t.tx.QueryRow(ctx, `UPDATE inbox SET seq = $3, digest = $4, envelope = CASE envelope WHEN '' THEN envelope ELSE $5 END WHERE conn = $1 AND id = $2
		AND NOT EXISTS (SELECT FROM inbox WHERE conn = $1 AND seq = $3 AND id <> $2) RETURNING length(envelope)`, m.Conn, m.Header.ID, m.Header.Seq, m.Digest[:], m.Envelope).Scan(&left)
	if errors.Is(err, pgx.ErrNoRows) {
		t.reuse(m)
		return nil
	}
	if err != nil {
		return fmt.Errorf("storing message %s, which was sealed anew: %w", m.Header.ID, err)
	}
	t.repeat(m)
	t.numbers = append(t.numbers, m.Header.Seq)
	if left > 0 {
		t.kept.bytes += int64(left - was)
	}
	return nil
}

// insertInbox queues the insertion of messages, and says then which of them were new.
func insertInbox(tx *Tx, list []*Incoming, were func(fresh map[string]bool) error) {
	if len(list) == 0 {
		return
	}
	var conn, id, kind, code, re, task []string
	var seq []int64
	var exp []time.Time
	var digest, envelope [][]byte
	for _, m := range list {
		conn, id, seq = append(conn, m.Conn), append(id, m.Header.ID), append(seq, m.Header.Seq)
		kind, exp = append(kind, m.Header.Kind), append(exp, time.UnixMilli(m.Header.Exp))
		digest, envelope = append(digest, m.Digest[:]), append(envelope, m.Envelope[:m.keptBytes()])
		r, c := "", ""
		if m.Header.Re != nil {
			r = m.Header.Re.ID
		}
		if m.Refusal != nil {
			c = string(m.Refusal.Code)
		}
		re, code, task = append(re, r), append(code, c), append(task, m.Task())
	}
	tx.Queue(`
		INSERT INTO inbox (conn, id, seq, digest, kind, code, re, task, exp, envelope)
		SELECT a, b, c, d, e, f, nullif(g, '')::uuid, nullif(h, '')::uuid, i, j
		FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::bytea[], $5::text[], $6::text[], $7::text[], $8::text[], $9::timestamptz[], $10::bytea[])
			AS u (a, b, c, d, e, f, g, h, i, j) ORDER BY c
		ON CONFLICT DO NOTHING RETURNING id::text`,
		conn, id, seq, digest, kind, code, re, task, exp, envelope).Query(func(rows pgx.Rows) error {
		fresh, key := map[string]bool{}, ""
		if _, err := pgx.ForEachRow(rows, []any{&key}, func() error { fresh[key] = true; return nil }); err != nil {
			return fmt.Errorf("filling the inbox: %w", err)
		}
		return were(fresh)
	})
}
