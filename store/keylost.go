package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
)

// A peer that was restored to before a rotation of our key knows the key of before alone, and the identity key. What the
// new key signs it refuses. So heartbeats are signed by the identity key, and nothing is relayed but key sets, until it has taken
// one. Those that it has lost are as they were: the first is signed by the key that it knows. Where they are no more, it is
// told one that the identity key alone signs.

// keyLost is whether the peer of connection $1, which has stored the numbers $2 of our messages, has no key set since
// the key was made that signs towards it; a key of the handshake needs none. Confirmed sets are pruned: without any, only a
// peer that was restored ($3) may have lost it. can is whether a set can still tell it.
const keyLost = `SELECT l.lost, l.can FROM connections n JOIN own_keys k ON k.kid = $4 AND k.made_at > n.created_at, LATERAL (
		SELECT count(*) FILTER (WHERE stored) = 0 AND (count(*) > 0 OR $3), count(*) FILTER (WHERE live) > 0 FROM (
			SELECT $2::int8multirange @> o.seq AS stored, o.exp > clock_timestamp() AS live FROM outbox o
			WHERE o.conn = $1 AND ` + tellsKeys + ` AND o.created_at >= k.made_at) AS told) AS l (lost, can) WHERE n.id = $1`

// lostKeySet is the first key set that has time left and is not among the numbers $2.
var lostKeySet = `SELECT ` + outgoingColumns + ` FROM outbox o
	WHERE o.conn = $1 AND ` + tellsKeys + ` AND o.exp > clock_timestamp() AND NOT $2::int8multirange @> o.seq ORDER BY o.seq LIMIT 1`

// tellsKeys says the kind as text: only so are these found by the index of key sets, and not among all messages.
const tellsKeys = `o.kind = '` + string(commands.KeySetKind) + `'`

// findKeyLost finds out whether the peer has lost the key that signs towards it. Where no message is left that
// tells it, [DB.TendKeys] makes one.
func (c *comparing) findKeyLost(ctx context.Context) error {
	var can bool
	err := c.tx.QueryRow(ctx, keyLost, c.conn, has(c.theirs.Stored), c.theirs.Recall > 0, c.kid).Scan(&c.out.KeyLost, &can)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("looking for what the peer knows of our keys: %w", err)
	}
	if !c.out.KeyLost || can {
		return nil
	}
	if _, err := c.tx.Exec(ctx, `UPDATE sequences SET told = -1 WHERE conn = $1`, c.conn); err != nil {
		return fmt.Errorf("noting that the peer is to be told our keys anew: %w", err)
	}
	return nil
}

// tellKeysAgain reads the first key set that the peer has not stored, where it has lost the key: the next one may be signed by a key
// that this one names.
func (c *comparing) tellKeysAgain(ctx context.Context) error {
	if !c.out.KeyLost {
		return nil
	}
	c.out.Differs = "the peer was restored from a backup and does not know the key that this instance signs with; it is told that again"
	rows, err := c.tx.Query(ctx, lostKeySet, c.conn, has(c.theirs.Stored))
	if err == nil {
		c.out.KeySets, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Outgoing])
	}
	if err != nil {
		return fmt.Errorf("reading the key sets that the peer has lost: %w", err)
	}
	return nil
}

// sealReopened seals messages again that the peer has lost, from number first on, where a key has signed them that was revoked since: it
// had taken them before it learned that.
func (c *comparing) sealReopened(ctx context.Context, first int64) error {
	rows, err := c.tx.Query(ctx, `SELECT kid FROM own_keys WHERE revoked_at IS NOT NULL AND kid <> $1`, c.kid)
	if err != nil {
		return fmt.Errorf("reading which keys were revoked: %w", err)
	}
	revoked, err := pgx.CollectRows(rows, pgx.RowTo[signing.KeyID])
	if err != nil || len(revoked) == 0 {
		return err
	}
	stays := func(h *signing.Header, _ time.Time) bool {
		return h.Kind == string(commands.KeySetKind) || !slices.Contains(revoked, h.Kid)
	}
	_, err = c.db.sealOpen(ctx, c.tx, c.conn, c.kid, first, stays, sameNumber)
	return err
}
