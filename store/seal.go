package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
)

// sealedAtOnce is how many messages are sealed again in one step: after an outage they may
// be more than there is memory for.
const sealedAtOnce = 100

// sealAgain seals all open messages of conn from number first on once more, with
// the key kid, and returns how many they are. number gives the new number of the
// i-th one: its own, or one above all that there are. The caller holds the row of the
// connection's numbers.
func (db *DB) sealAgain(ctx context.Context, tx *Tx, conn string, kid signing.KeyID, first int64, number func(i int, seq int64) int64) (int, error) {
	signer, err := db.SignerOf(kid)
	if err != nil {
		return 0, err
	}
	var top int64
	if err := tx.QueryRow(ctx, `SELECT coalesce(max(seq), 0) FROM outbox WHERE conn = $1 AND closed_at IS NULL`, conn).Scan(&top); err != nil {
		return 0, fmt.Errorf("looking for messages to seal again: %w", err)
	}
	for n, from := 0, first; ; {
		done, last, err := db.sealSome(ctx, tx, conn, signer, from, top, func(i int, seq int64) int64 { return number(n+i, seq) })
		if n += done; err != nil || done < sealedAtOnce {
			return n, err
		}
		from = last + 1
	}
}

// sealSome seals the first of the open messages with numbers from one to another again. It
// returns how many they are, and the last number that they had.
func (db *DB) sealSome(ctx context.Context, tx *Tx, conn string, signer *signing.Signer, from, to int64, number func(i int, seq int64) int64) (n int, last int64, err error) {
	rows, err := tx.Query(ctx, `SELECT id::text, seq, kind, envelope FROM outbox WHERE conn = $1 AND closed_at IS NULL AND seq BETWEEN $2 AND $3 ORDER BY seq LIMIT $4`,
		conn, from, to, sealedAtOnce)
	if err != nil {
		return 0, 0, fmt.Errorf("reading messages to seal again: %w", err)
	}
	var ids []string
	var seqs []int64
	var digests, envelopes [][]byte
	var id string
	var kind commands.Kind
	var envelope []byte
	_, err = pgx.ForEachRow(rows, []any{&id, &last, &kind, &envelope}, func() error {
		var also []*signing.Signer
		if kind == commands.KeySetKind {
			also = append(also, db.ring.Identity)
		}
		s, err := signer.Renumber(envelope, number(len(ids), last), also...)
		if err != nil {
			return fmt.Errorf("sealing message %s again: %w", id, err)
		}
		ids, seqs, digests, envelopes = append(ids, s.ID), append(seqs, s.Seq), append(digests, s.Digest[:]), append(envelopes, s.Envelope)
		return nil
	})
	if err != nil {
		return 0, 0, err
	}
	_, err = tx.Exec(ctx, `
		UPDATE outbox o SET seq = u.seq, digest = u.digest, envelope = u.envelope
		FROM unnest($1::uuid[], $2::bigint[], $3::bytea[], $4::bytea[]) AS u (id, seq, digest, envelope) WHERE o.id = u.id`, ids, seqs, digests, envelopes)
	if err != nil {
		return 0, 0, fmt.Errorf("storing messages that were sealed again: %w", err)
	}
	return len(ids), last, nil
}
