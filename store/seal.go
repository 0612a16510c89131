package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
)

// sealAgain seals all open messages of conn from number first on once more, with
// the key kid, and returns how many they are. number gives the new number of the
// i-th one. The caller holds the row of the connection's numbers.
func (db *DB) sealAgain(ctx context.Context, tx *Tx, conn string, kid signing.KeyID, first int64, number func(i int, seq int64) int64) (int, error) {
	signer, err := db.SignerOf(kid)
	if err != nil {
		return 0, err
	}
	rows, err := tx.Query(ctx, `SELECT id::text, seq, kind, envelope FROM outbox WHERE conn = $1 AND closed_at IS NULL AND seq >= $2 ORDER BY seq`, conn, first)
	if err != nil {
		return 0, fmt.Errorf("reading messages to seal again: %w", err)
	}
	var ids []string
	var seqs []int64
	var digests, envelopes [][]byte
	var id string
	var seq int64
	var kind commands.Kind
	var envelope []byte
	_, err = pgx.ForEachRow(rows, []any{&id, &seq, &kind, &envelope}, func() error {
		var also []*signing.Signer
		if kind == commands.KeySetKind {
			also = append(also, db.ring.Identity)
		}
		s, err := signer.Renumber(envelope, number(len(ids), seq), also...)
		if err != nil {
			return fmt.Errorf("sealing message %s again: %w", id, err)
		}
		ids, seqs, digests, envelopes = append(ids, s.ID), append(seqs, s.Seq), append(digests, s.Digest[:]), append(envelopes, s.Envelope)
		return nil
	})
	if err != nil {
		return 0, err
	}
	_, err = tx.Exec(ctx, `
		UPDATE outbox o SET seq = u.seq, digest = u.digest, envelope = u.envelope
		FROM unnest($1::uuid[], $2::bigint[], $3::bytea[], $4::bytea[]) AS u (id, seq, digest, envelope) WHERE o.id = u.id`, ids, seqs, digests, envelopes)
	if err != nil {
		return 0, fmt.Errorf("storing messages that were sealed again: %w", err)
	}
	return len(ids), nil
}
