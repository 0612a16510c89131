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

// sealTogether signs drafts with the numbers that their connections have next: one
// signature for all that one key signs. A key set is signed by other keys, too, and so
// alone. What goes to a connection that has ended, which has no number, stays empty.
func (db *DB) sealTogether(drafts []Draft, next map[string]*numbered) ([]signing.Sealed, error) {
	sealed := make([]signing.Sealed, len(drafts))
	by := map[signing.KeyID]*sealing{}
	for i, d := range drafts {
		n := next[d.Conn]
		if n == nil {
			continue
		}
		m, err := db.unsealed(d, n)
		if err != nil {
			return nil, err
		}
		if set, ok := d.Body.(*commands.KeySet); ok {
			if sealed[i], err = db.sealKeySet(n.kid, set, m); err != nil {
				return nil, err
			}
			continue
		}
		if by[n.kid] == nil {
			by[n.kid] = &sealing{}
		}
		by[n.kid].add(i, m)
	}
	for _, kid := range slices.Sorted(maps.Keys(by)) {
		signer, err := db.SignerOf(kid)
		if err != nil {
			return nil, err
		}
		if err := by[kid].seal(signer, sealed); err != nil {
			return nil, err
		}
	}
	return sealed, nil
}

// A sealing is what one key signs, and where among the drafts each message is.
type sealing struct {
	at   []int
	list []signing.Unsealed
}

func (s *sealing) add(at int, m signing.Unsealed) {
	s.at, s.list = append(s.at, at), append(s.list, m)
}

func (s *sealing) seal(signer *signing.Signer, into []signing.Sealed) error {
	sealed, err := signer.SealAll(s.list)
	if err != nil {
		return err
	}
	for i, at := range s.at {
		into[at] = sealed[i]
	}
	return nil
}

// unsealed is d as it is to be signed, with the next number of n.
func (db *DB) unsealed(d Draft, n *numbered) (signing.Unsealed, error) {
	body, err := commands.BodyToSend(d.Body)
	if err != nil {
		return signing.Unsealed{}, err
	}
	h := signing.Header{ID: d.id, Kind: string(d.Body.Kind()), Iss: db.self, Aud: n.peer, Conn: d.Conn,
		Epoch: n.epoch, Seq: n.first, Iat: n.now.UnixMilli(), Exp: n.now.Add(cmp.Or(d.Life, AnswerLife)).UnixMilli(), Wsp: Workspace, Re: d.Re}
	n.first, n.left = n.first+1, n.left-1
	return signing.Unsealed{Type: d.Body.Kind().Type(), Header: h, Body: body}, nil
}

// sealedAtOnce is how many messages are sealed again in one step: after an outage they may
// be more than there is memory for.
const sealedAtOnce = 100

// SealAhead seals the open messages of conn with these numbers once more, under the same ones, where the
// clock was ahead when they were sealed: the peer refuses them as long as it is not as late. Kills that it may have taken all the
// same stay as they are, as what it has obeyed.
func (db *DB) SealAhead(ctx context.Context, conn string, from, to int64) error {
	return db.Tx(ctx, "sealing messages of a clock that was ahead again", func(ctx context.Context, tx *Tx) error {
		if _, err := tx.Exec(ctx, lockForNumbers, conn); err != nil {
			return err
		}
		var kid signing.KeyID
		if err := tx.QueryRow(ctx, `SELECT kid FROM sequences WHERE conn = $1 FOR UPDATE`, conn).Scan(&kid); err != nil {
			return fmt.Errorf("holding the numbers of the connection: %w", err)
		}
		signer, err := db.SignerOf(kid)
		for last, next := from, from; err == nil && last != 0; next = last + 1 {
			_, last, err = db.sealSome(ctx, tx, conn, signer, next, to, takenEarly, sameNumber)
		}
		if err != nil && !errors.Is(err, signing.ErrMissing) { // what its key has signed stays as it is
			return err
		}
		_, err = tx.Exec(ctx, `UPDATE outbox SET created_at = clock_timestamp() WHERE conn = $1 AND seq BETWEEN $2 AND $3 AND created_at > clock_timestamp() + $4::interval`, conn, from, to, signing.Skew)
		return err
	})
}

// takenEarly reports whether a peer may take a message before its time, whose clock differs from ours by no more than is allowed.
func takenEarly(h *signing.Header, now time.Time) bool {
	return h.Kind == string(commands.KillKind) && time.UnixMilli(h.Iat).Sub(now) <= commands.KillsAhead+signing.Skew
}

// sealAgain seals all open messages of conn from number first on once more, with
// the key kid, and returns how many they are. number gives the new number of the
// i-th one: its own, or one above all that there are. What another version of this program
// has sealed stays as it is: nobody takes it, under no number. The caller holds the row of
// the connection's numbers.
func (db *DB) sealAgain(ctx context.Context, tx *Tx, conn string, kid signing.KeyID, first int64, number func(i int, seq int64) int64) (int, error) {
	return db.sealOpen(ctx, tx, conn, kid, first, func(*signing.Header, time.Time) bool { return false }, number)
}

// sameNumber lets messages that are sealed again have the number that they had.
func sameNumber(_ int, seq int64) int64 { return seq }

// sealOpen is [DB.sealAgain] but for what stays as it is.
func (db *DB) sealOpen(ctx context.Context, tx *Tx, conn string, kid signing.KeyID, first int64, stays func(h *signing.Header, now time.Time) bool, number func(i int, seq int64) int64) (int, error) {
	signer, err := db.SignerOf(kid)
	if err != nil {
		return 0, err
	}
	var top int64
	if err := tx.QueryRow(ctx, `SELECT coalesce(max(seq), 0) FROM outbox WHERE conn = $1`, conn).Scan(&top); err != nil {
		return 0, fmt.Errorf("looking for messages to seal again: %w", err)
	}
	for n, from := 0, first; ; {
		done, last, err := db.sealSome(ctx, tx, conn, signer, from, top, stays, func(i int, seq int64) int64 { return number(n+i, seq) })
		if n += done; err != nil || last == 0 {
			return n, err
		}
		from = last + 1
	}
}

// sealSome seals the first of the open messages with numbers from one to another again, but for those that stay as they are. It
// returns how many they are, and the last number that was looked at, 0 for none.
func (db *DB) sealSome(ctx context.Context, tx *Tx, conn string, signer *signing.Signer, from, to int64, stays func(h *signing.Header, now time.Time) bool, number func(i int, seq int64) int64) (n int, last int64, err error) {
	rows, err := tx.Query(ctx, `SELECT o.id::text, o.seq, o.envelope, clock_timestamp() FROM `+openMessages+` ORDER BY o.seq`, conn, from, to, sealedAtOnce)
	if err != nil {
		return 0, 0, fmt.Errorf("reading messages to seal again: %w", err)
	}
	var list []signing.Unsealed
	var id string
	var envelope []byte
	var now time.Time
	_, err = pgx.ForEachRow(rows, []any{&id, &last, &envelope, &now}, func() error {
		m, err := signing.Unseal(envelope, number(len(list), last))
		if commands.CodeOf(err) == signing.EnvType {
			return nil
		}
		if err != nil {
			return fmt.Errorf("sealing message %s again: %w", id, err)
		}
		if stays(&m.Header, now) {
			return nil
		}
		m.Retime(now)
		list = append(list, m)
		return nil
	})
	if err != nil {
		return 0, 0, err
	}
	sealed, err := db.resealed(signer, list)
	if err != nil {
		return 0, 0, err
	}
	return len(list), last, storeSealed(ctx, tx, sealed)
}

// resealed signs messages of one connection together, but for key sets: one that revokes
// the key of signer is not to be signed by it.
func (db *DB) resealed(signer *signing.Signer, list []signing.Unsealed) ([]signing.Sealed, error) {
	sealed := make([]signing.Sealed, len(list))
	var together sealing
	for i, m := range list {
		if m.Type != signing.KeySet {
			together.add(i, m)
			continue
		}
		set := &commands.KeySet{}
		err := signing.DecodeBody(m.Body, set)
		if err == nil {
			sealed[i], err = db.sealKeySet(signer.KeyID(), set, m)
		}
		if err != nil {
			return nil, fmt.Errorf("sealing a key set again: %w", err)
		}
	}
	return sealed, together.seal(signer, sealed)
}

// storeSealed puts new seals in the place of old ones.
func storeSealed(ctx context.Context, tx *Tx, sealed []signing.Sealed) error {
	var ids []string
	var seqs []int64
	var exps []time.Time
	var digests, envelopes [][]byte
	for _, s := range sealed {
		ids, seqs, exps, digests, envelopes = append(ids, s.ID), append(seqs, s.Seq), append(exps, s.Exp), append(digests, s.Digest[:]), append(envelopes, s.Envelope)
	}
	_, err := tx.Exec(ctx, `
		UPDATE outbox o SET seq = u.seq, digest = u.digest, envelope = u.envelope, exp = u.exp
		FROM unnest($1::uuid[], $2::bigint[], $3::bytea[], $4::bytea[], $5::timestamptz[]) AS u (id, seq, digest, envelope, exp) WHERE o.id = u.id`, ids, seqs, digests, envelopes, exps)
	if err != nil {
		return fmt.Errorf("storing messages that were sealed again: %w", err)
	}
	return nil
}
