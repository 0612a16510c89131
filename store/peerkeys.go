package store

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
)

// Verifying is what it takes to open the messages of a peer. Whether a key was
// revoked is decided in the transaction of a message's effect; for messages that
// have none, Ended says it as it was when the keys were read.
type Verifying struct {
	Verifier signing.Verifier
	Ended    map[signing.KeyID]signing.Code
}

func (db *DB) verifying(c Connection) Verifying {
	return Verifying{signing.Verifier{Self: db.self, Conn: c.ID, Epoch: c.Epoch, Keys: map[signing.KeyID]signing.PeerKey{}, Heads: &signing.Heads{}}, map[signing.KeyID]signing.Code{}}
}

const verifyingColumns = `k.conn::text, k.kid, k.owner, k.pub, k.use = 'identity',
	` + keyEnded

// addKeys adds keys to what is at each connection.
func addKeys(rows pgx.Rows, at map[string]*Verifying) error {
	var conn string
	var k signing.PeerKey
	var identity bool
	var ended signing.Code
	_, err := pgx.ForEachRow(rows, []any{&conn, &k.ID, &k.Owner, &k.Public, &identity, &ended}, func() error {
		v := at[conn]
		if v == nil {
			return nil
		}
		v.Verifier.Keys[k.ID] = signing.PeerKey{ID: k.ID, Owner: k.Owner, Public: append([]byte(nil), k.Public...)}
		if identity {
			v.Verifier.Identity = k.ID
		}
		if ended != "" {
			v.Ended[k.ID] = ended
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("reading the keys of peers: %w", err)
	}
	return nil
}

// KeysOf reads the keys of the peer of c.
func (db *DB) KeysOf(ctx context.Context, c Connection) (Verifying, error) {
	v := db.verifying(c)
	rows, err := db.pool.Query(ctx, `SELECT `+verifyingColumns+` FROM keys k WHERE k.conn = $1 AND k.use <> 'sealing'`, c.ID)
	if err != nil {
		return v, fmt.Errorf("reading the keys of connection %s: %w", c.ID, err)
	}
	return v, addKeys(rows, map[string]*Verifying{c.ID: &v})
}

func isKeySet(m *Incoming) bool { return m.Header.Kind == string(commands.KeySetKind) }

// TakeKeySet puts the key set in force that the peer says in m, inside act of
// [DB.TakeIn], or refuses it. Other messages of the connection wait for it or
// come before it: what a revoked key signed has no effect after it.
func TakeKeySet(ctx context.Context, tx *Tx, from Standing, m *Incoming) error {
	set := m.Body.(*commands.KeySet)
	var identity signing.KeyID
	var version int64
	err := tx.QueryRow(ctx, `SELECT kid, version FROM keys WHERE conn = $1 AND use = 'identity' FOR UPDATE`, from.ID).Scan(&identity, &version)
	if err != nil {
		return fmt.Errorf("reading the version of a peer's key set: %w", err)
	}
	switch {
	case set.Version <= version:
		m.Refuse(tx, commands.Refuse(signing.KeySetVersion, "version %d of the key set is not newer than version %d, which is in force", set.Version, version))
		return nil
	case m.Header.Kid == identity && len(set.Revoked) == 0:
		m.Refuse(tx, commands.Refuse(signing.KeySetSigner, "a key set that revokes nothing is signed by a signing key too"))
		return nil
	}
	return putKeySet(ctx, tx, from, m, set)
}

func putKeySet(ctx context.Context, tx *Tx, from Standing, m *Incoming, set *commands.KeySet) error {
	var kids []signing.KeyID
	for _, k := range set.Keys {
		if err := checkFreeKey(ctx, tx, from.Peer, k.Pub); err != nil {
			r, ok := errors.AsType[*signing.Rejected](err)
			if ok {
				m.Refuse(tx, commands.Refuse(r.Code, "%s", r.Why))
				return nil
			}
			return err
		}
		kids = append(kids, signing.KeyIDOf(ed25519.PublicKey(k.Pub)))
	}
	if _, err := tx.Exec(ctx, `UPDATE keys SET version = $2 WHERE conn = $1 AND use = 'identity'`, from.ID, set.Version); err != nil {
		return err
	}
	for i, k := range set.Keys {
		// A key that ended before does not live longer because a set names it again.
		_, err := tx.Exec(ctx, `INSERT INTO keys AS k (conn, kid, owner, use, pub, not_after) VALUES ($1, $2, $3, 'signing', $4,
				CASE WHEN $5::bigint = 0 THEN 'infinity' ELSE clock_timestamp() + $5 * interval '1 ms' END)
			ON CONFLICT (conn, kid) DO UPDATE SET not_after = least(k.not_after, excluded.not_after) WHERE k.use = 'signing'`,
			from.ID, kids[i], from.Peer, k.Pub, k.ForMS)
		if err != nil {
			return fmt.Errorf("storing a key of %s: %w", from.Name, err)
		}
	}
	_, err := tx.Exec(ctx, `UPDATE keys SET revoked_at = CASE WHEN kid = ANY ($3) THEN coalesce(revoked_at, clock_timestamp()) ELSE revoked_at END,
			not_after = least(not_after, clock_timestamp())
		WHERE conn = $1 AND use = 'signing' AND NOT kid = ANY ($2)`, from.ID, kids, set.Revoked)
	if err != nil {
		return fmt.Errorf("ending keys of %s: %w", from.Name, err)
	}
	m.Note(tx, "keys.changed", setText(set, kids[0]))
	return nil
}

// setText says for the audit what a key set changes.
func setText(set *commands.KeySet, signs signing.KeyID) string {
	text := fmt.Sprintf("version %d of the key set: signs with %s", set.Version, signs)
	for _, id := range set.Revoked {
		text += fmt.Sprintf(", %s is revoked", id)
	}
	if set.Reason != "" {
		text += ": " + set.Reason
	}
	return text
}

// A PeerKeyView is a key of a peer, for people.
type PeerKeyView struct {
	Peer    string        `json:"peer"`
	ID      signing.KeyID `json:"id"`
	Use     string        `json:"use"`
	State   string        `json:"state"` // valid, ended or revoked
	Since   time.Time     `json:"since"`
	Until   *time.Time    `json:"until,omitempty"`
	Revoked *time.Time    `json:"revoked_at,omitempty"`
}

const peerKeyViews = `SELECT c.peer_name, k.kid, k.use,
		CASE WHEN k.revoked_at IS NOT NULL THEN 'revoked' WHEN k.not_after < clock_timestamp() THEN 'ended' ELSE 'valid' END,
		k.not_before, CASE WHEN k.not_after < 'infinity' THEN k.not_after END, k.revoked_at
	FROM keys k JOIN connections c ON c.id = k.conn WHERE k.use <> 'sealing' AND NOT has_ended(c.state)
	ORDER BY c.peer_name, k.use, k.not_before DESC`
