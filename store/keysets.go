package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
)

// How a new signing key gets to a peer. The key set is a message like any other:
// numbered, stored, sent until the peer has confirmed it. Until then everything
// towards that peer is signed with the key that it knows. Then the new key signs,
// and what the peer has not stored of a revoked key's messages is sealed again:
// after it has taken the set, it takes nothing more that such a key has signed.

// A Tended connection was told of a key set, or is signed for by another key now.
type Tended struct {
	Conn   string
	Name   string
	Signs  signing.KeyID // towards the peer from now on; "" while it has not confirmed the set
	Resend bool          // open messages were sealed again
}

// TendKeys does the next step for every living connection whose peer does not
// know the newest key set, and removes keys that nothing needs any more. behind are these
// connections: their next step is due when the peer has confirmed what it was told. A peer that
// has refused the newest set has not: it is told the next one.
func (db *DB) TendKeys(ctx context.Context) (done []Tended, behind []string, err error) {
	list, err := db.behind(ctx)
	if err != nil {
		return nil, nil, err
	}
	list = slices.DeleteFunc(list, func(b behindRow) bool { return b.refused })
	for _, b := range list {
		behind = append(behind, b.conn)
	}
	for _, b := range list {
		t, err := db.tend(ctx, b)
		if err != nil {
			return done, behind, err
		}
		if t.Conn != "" {
			done = append(done, t)
		}
	}
	return done, behind, db.removeKeys(ctx)
}

// refusedSets joins with a message o that tells a key set that its peer has refused it. One that is not
// newer than the set in force is not needed.
const refusedSets = `refused r ON r.conn = o.conn AND r.seq = o.seq AND r.code <> '` + string(signing.KeySetVersion) + `'`

type behindRow struct {
	conn, name string
	authority  Authority
	told       bool // of the newest set, in a message that can still arrive
	lost       bool // it has lost what it was told: see [comparing.findKeyLost]
	confirmed  bool
	refused    bool // so that it does not know the new key; a newer set is to mend it
}

func (db *DB) behind(ctx context.Context) (list []behindRow, err error) {
	err = db.Read(ctx, "looking for peers that do not know the newest keys", func(ctx context.Context, conn *pgxpool.Conn) error {
		rows, err := conn.Query(ctx, `SELECT c.id::text, c.peer_name, c.authority, s.told = i.keys AND o.id IS NOT NULL AND o.exp > clock_timestamp(),
				coalesce((SELECT d.numbers @> o.seq FROM confirmed d WHERE d.conn = o.conn), false), s.told = i.keys AND r.code IS NOT NULL, s.told = -1
			FROM instance i, own_keys k, sequences s JOIN connections c ON c.id = s.conn LEFT JOIN outbox o ON o.id = s.keyset LEFT JOIN `+refusedSets+`
			WHERE k.retired_at IS NULL AND (s.told < i.keys OR s.kid <> k.kid) AND c.state IN ('active', 'suspended', 'disconnected') ORDER BY c.id`)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (b behindRow, err error) {
			return b, row.Scan(&b.conn, &b.name, &b.authority, &b.told, &b.confirmed, &b.refused, &b.lost)
		})
		return err
	})
	return list, err
}

func (db *DB) tend(ctx context.Context, b behindRow) (t Tended, err error) {
	switch {
	case !b.told:
		err = db.Tx(ctx, "telling "+b.name+" the new keys", func(ctx context.Context, tx *Tx) error { return tellKeys(ctx, tx, b) })
		return Tended{Conn: b.conn, Name: b.name}, err
	case b.confirmed:
		err = db.Tx(ctx, "signing for "+b.name+" with the new key", func(ctx context.Context, tx *Tx) error {
			t, err = db.switchKey(ctx, tx, b)
			return err
		})
	}
	return t, err
}

// tellKeys queues the key set for a peer.
func tellKeys(ctx context.Context, tx *Tx, b behindRow) error {
	set, err := keySet(ctx, tx, b.lost)
	if err != nil {
		return err
	}
	queue := commands.QueueControl
	if b.authority == Obeys {
		queue = commands.QueueEvents
	}
	id := tx.Send(Draft{Conn: b.conn, Queue: queue, Body: set, Life: signing.KeySet.Lifetime() - time.Minute})
	if _, err := tx.Exec(ctx, `UPDATE sequences SET told = $2, keyset = $3 WHERE conn = $1`, b.conn, set.Version, id); err != nil {
		return fmt.Errorf("noting which keys %s was told: %w", b.name, err)
	}
	tx.Audit(AuditRow{Actor: "self", Action: "keys.told", Object: b.name, Why: fmt.Sprintf("version %d", set.Version), Conn: b.conn})
	return nil
}

// switchKey signs with the current key from now on. Who seals a message for this
// peer holds the same row.
func (db *DB) switchKey(ctx context.Context, tx *Tx, b behindRow) (t Tended, err error) {
	var old signing.KeyID
	var revoked bool
	if _, err := tx.Exec(ctx, lockForNumbers, b.conn); err != nil {
		return t, err
	}
	err = tx.QueryRow(ctx, `SELECT s.kid, k.revoked_at IS NOT NULL FROM sequences s JOIN own_keys k ON k.kid = s.kid WHERE s.conn = $1 FOR UPDATE OF s`, b.conn).Scan(&old, &revoked)
	if err != nil {
		return t, err
	}
	// The set that was confirmed may not be the newest any more.
	t = Tended{Conn: b.conn, Name: b.name}
	err = tx.QueryRow(ctx, `UPDATE sequences s SET kid = k.kid FROM own_keys k, instance i
		WHERE s.conn = $1 AND k.retired_at IS NULL AND s.told = i.keys RETURNING s.kid`, b.conn).Scan(&t.Signs)
	if errors.Is(err, pgx.ErrNoRows) {
		return Tended{}, nil
	}
	if err != nil {
		return t, err
	}
	why := fmt.Sprintf("%s instead of %s", t.Signs, old)
	if revoked {
		n, err := db.sealAgain(ctx, tx, b.conn, t.Signs, 0, sameNumber)
		if err != nil {
			return t, err
		}
		t.Resend = n > 0
		why += fmt.Sprintf(", which is revoked; %d messages that it had not stored were sealed again", n)
	}
	tx.Audit(AuditRow{Actor: "self", Action: "keys.confirmed", Object: b.name, Why: why, Conn: b.conn})
	return t, nil
}

// removeKeys removes the private halves of old keys that sign towards nobody.
func (db *DB) removeKeys(ctx context.Context) error {
	var current signing.KeyID
	var gone []signing.KeyID
	err := db.Read(ctx, "looking for keys that nothing needs", func(ctx context.Context, conn *pgxpool.Conn) error {
		return conn.QueryRow(ctx, `SELECT k.kid, ARRAY(SELECT o.kid FROM own_keys o WHERE o.retired_at IS NOT NULL AND o.removed_at IS NULL AND NOT EXISTS (
				SELECT FROM sequences s JOIN connections c ON c.id = s.conn WHERE s.kid = o.kid AND NOT has_ended(c.state)))
			FROM own_keys k WHERE k.retired_at IS NULL`).Scan(&current, &gone)
	})
	if err != nil || len(gone) == 0 {
		return err
	}
	if err := db.ring.Settle(current, gone); err != nil {
		return err
	}
	return db.Tx(ctx, "removing old keys", func(ctx context.Context, tx *Tx) error {
		_, err := tx.Exec(ctx, `UPDATE own_keys SET removed_at = clock_timestamp() WHERE kid = ANY ($1)`, gone)
		for _, kid := range gone {
			tx.Audit(AuditRow{Actor: "self", Action: "keys.removed", Object: string(kid), Why: "every peer knows a newer one"})
		}
		return err
	})
}
