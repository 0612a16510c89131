package store

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
)

// Bounds of the time for which an old key still verifies. The longest one is that
// of the longest-lived message.
const (
	MinOverlap = time.Minute
	MaxOverlap = AnswerLife
)

// adoptKey makes the first key of an instance its current one, and finds out
// whether the key that the database knows as the current one is at hand.
func (db *DB) adoptKey(ctx context.Context) error {
	err := db.retry(ctx, func(ctx context.Context) error {
		_, err := db.pool.Exec(ctx, `INSERT INTO own_keys (kid, pub) SELECT $1, $2 WHERE NOT EXISTS (SELECT FROM own_keys) ON CONFLICT DO NOTHING`,
			db.signer.KeyID(), []byte(db.signer.Public()))
		return err
	})
	if err != nil {
		return fmt.Errorf("storing the signing key's name: %w", err)
	}
	_, err = db.Signer(ctx)
	if errors.Is(err, signing.ErrMissing) && db.ring != nil {
		if err := db.adoptNewer(ctx); err != nil {
			return err
		}
		_, err = db.Signer(ctx)
	}
	if err != nil {
		return fmt.Errorf("finding the key that this instance signs with: %w", err)
	}
	return db.cleanReasons(ctx)
}

// cleanReasons makes the reasons of revocations, as a version of before has stored them, such
// that peers take them, and has all peers told again: they refused the set, and trust a
// revoked key.
func (db *DB) cleanReasons(ctx context.Context) error {
	return db.Tx(ctx, "cleaning the reasons of revoked keys", func(ctx context.Context, tx *Tx) error {
		rows, err := tx.Query(ctx, `SELECT kid, reason FROM own_keys WHERE revoked_at IS NOT NULL`)
		if err != nil {
			return err
		}
		cleaned := map[string]string{}
		var kid, reason string
		_, err = pgx.ForEachRow(rows, []any{&kid, &reason}, func() error {
			if commands.CheckReason(reason) != nil {
				cleaned[kid] = commands.CleanReason(reason)
			}
			return nil
		})
		if err != nil || len(cleaned) == 0 {
			return err
		}
		for kid, reason := range cleaned {
			if _, err := tx.Exec(ctx, `UPDATE own_keys SET reason = $2 WHERE kid = $1`, kid, reason); err != nil {
				return err
			}
			tx.Audit(AuditRow{Actor: "self", Action: "keys.cleaned", Object: kid, Why: "no peer takes the reason of its revocation as it was; all are told again: " + reason})
		}
		_, err = tx.Exec(ctx, `UPDATE instance SET keys = `+nextVersion)
		return err
	})
}

// adoptNewer makes the key of the key directory the current one where the database
// has never heard of it, and the key that it knows is gone: the database was put back
// from before a rotation, and the directory was not. A key is removed only when every
// peer knows its successor, so they take what this one signs. One that the database
// knows and that has ended does not come back.
//
// The old key may have been revoked since. So it verifies only for [MinOverlap] more: what
// it has signed and has not arrived is sealed again. A peer that has revoked it, or ended
// it, does not let it live again for that.
func (db *DB) adoptNewer(ctx context.Context) error {
	return db.Tx(ctx, "adopting the signing key of the key directory", func(ctx context.Context, tx *Tx) error {
		var version int64
		err := tx.QueryRow(ctx, `UPDATE instance SET keys = `+nextVersion+`
			WHERE NOT EXISTS (SELECT FROM own_keys WHERE kid = $1) RETURNING keys`, db.signer.KeyID()).Scan(&version)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		var old signing.KeyID
		if err := tx.QueryRow(ctx, `UPDATE own_keys SET retired_at = clock_timestamp(), verifies = $1 WHERE retired_at IS NULL RETURNING kid`, MinOverlap).Scan(&old); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `INSERT INTO own_keys (kid, pub) VALUES ($1, $2)`, db.signer.KeyID(), []byte(db.signer.Public())); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `UPDATE sequences SET kid = $2 WHERE kid = $1`, old, db.signer.KeyID()); err != nil {
			return err
		}
		tx.Audit(AuditRow{Actor: "self", Action: "keys.adopted", Object: string(old), Why: fmt.Sprintf("version %d: signs with %s, which is in the key directory; the database was restored from before it", version, db.signer.KeyID())})
		return nil
	})
}

// Signer returns the current signing key: what new peers are shown.
func (db *DB) Signer(ctx context.Context) (*signing.Signer, error) {
	var kid signing.KeyID
	err := db.retry(ctx, func(ctx context.Context) error {
		return db.pool.QueryRow(ctx, `SELECT kid FROM own_keys WHERE retired_at IS NULL`).Scan(&kid)
	})
	if err != nil {
		return nil, fmt.Errorf("asking which key signs: %w", err)
	}
	return db.SignerOf(kid)
}

// SignerOf returns the signing key of this instance that is named kid.
func (db *DB) SignerOf(kid signing.KeyID) (*signing.Signer, error) {
	switch {
	case kid == db.signer.KeyID():
		return db.signer, nil
	case db.ring == nil:
		return nil, fmt.Errorf("signing key %s is not here", kid)
	}
	return db.ring.Signer(kid)
}

// nextVersion is the version of the next key set. It is taken from the clock: a
// database that was restored does not use a number again.
const nextVersion = `greatest(keys + 1, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)`

// A KeyChange says how the signing key of this instance is to be changed.
type KeyChange struct {
	Revoke    string `json:"revoke,omitempty"`     // this key is not to be trusted any more: its id, the beginning of it, or "current"; "" to rotate
	OverlapMS int64  `json:"overlap_ms,omitempty"` // how long the old key still verifies at each peer; 0 means MaxOverlap
	Reason    string `json:"reason,omitempty"`
	Actor     string `json:"-"`
}

// ChangeKey makes a new signing key the current one, and retires or revokes an
// old one. Each peer is told by [DB.TendKeys].
func (db *DB) ChangeKey(ctx context.Context, c KeyChange) error {
	if err := commands.CheckReason(c.Reason); err != nil {
		return err
	}
	overlap := MaxOverlap
	if c.OverlapMS != 0 {
		overlap = time.Duration(c.OverlapMS) * time.Millisecond
	}
	switch {
	case c.OverlapMS > MaxOverlap.Milliseconds() || c.OverlapMS != 0 && c.OverlapMS < MinOverlap.Milliseconds():
		return commands.Refuse(commands.Validation, "an old key verifies for %s to %s more", commands.Lasting(MinOverlap), commands.Lasting(MaxOverlap))
	case c.Revoke != "" && c.Reason == "":
		return commands.Refuse(commands.Validation, "to revoke a key needs a reason").Hinting("say why; peers are told and record it")
	case db.ring == nil:
		return commands.Refuse(commands.Conflict, "this instance has one key only")
	}
	// The file comes first: a key that the database names is always at hand. One
	// that it does not name, after a crash, is never used.
	next, err := db.ring.Make()
	if err != nil {
		return err
	}
	return db.Tx(ctx, "changing the signing key", func(ctx context.Context, tx *Tx) error {
		var version int64
		err := tx.QueryRow(ctx, `UPDATE instance SET keys = `+nextVersion+` RETURNING keys`).Scan(&version)
		if err != nil {
			return err
		}
		row := AuditRow{Actor: c.Actor, Action: "keys.rotated", Why: fmt.Sprintf("version %d: signs with %s", version, next.KeyID())}
		if c.Revoke != "" {
			row.Action, row.Why = "keys.revoked", row.Why+": "+c.Reason
			if row.Object, err = revokeOwn(ctx, tx, c); err != nil {
				return err
			}
		}
		old, err := retireOwn(ctx, tx, c.Revoke == "", overlap)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `INSERT INTO own_keys (kid, pub) VALUES ($1, $2)`, next.KeyID(), []byte(next.Public())); err != nil {
			return err
		}
		row.Object = cmp.Or(row.Object, old)
		tx.Audit(row)
		return nil
	})
}

// revokeOwn marks a key as revoked and returns which it is. The row of the
// instance is locked.
func revokeOwn(ctx context.Context, tx *Tx, c KeyChange) (string, error) {
	rows, err := tx.Query(ctx, `SELECT kid FROM own_keys WHERE kid = $1 OR $1 = 'current' AND retired_at IS NULL
		OR length($1) >= $2 AND (starts_with(kid, $1) OR starts_with(kid, 'ed25519:' || $1)) LIMIT 2`, c.Revoke, commands.MinPrefix)
	if err != nil {
		return "", err
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	switch {
	case err != nil:
		return "", err
	case len(found) == 0:
		return "", commands.Refuse(commands.NotFound, "this instance has no signing key %q", c.Revoke).Hinting("see").Running("keys", "list")
	case len(found) > 1:
		return "", commands.Refuse(commands.Ambiguous, "%q fits several signing keys", c.Revoke).Hinting("use more of the id; see").Running("keys", "list", "-o", "wide")
	}
	tag, err := tx.Exec(ctx, `UPDATE own_keys SET revoked_at = clock_timestamp(), reason = $2, retired_at = coalesce(retired_at, clock_timestamp())
		WHERE kid = $1 AND revoked_at IS NULL`, found[0], c.Reason)
	if err == nil && tag.RowsAffected() == 0 {
		err = commands.Refuse(commands.Conflict, "key %s was revoked before", found[0]).Hinting("see").Running("keys", "list")
	}
	return found[0], err
}

// retireOwn ends the current key's time, where a revocation has not done it yet,
// and returns which it was.
func retireOwn(ctx context.Context, tx *Tx, bounded bool, overlap time.Duration) (old string, err error) {
	var named int
	if err := tx.QueryRow(ctx, `SELECT count(*) FROM own_keys WHERE `+inSet).Scan(&named); err != nil {
		return "", err
	}
	if bounded && named >= commands.MaxSetKeys {
		return "", commands.Refuse(commands.Conflict, "%d signing keys still verify at peers, and no more than that can", named).
			Hinting("wait until the oldest that keys list shows has ended, or revoke it").Running("keys", "revoke", "KEY", "--reason", "WHY")
	}
	err = tx.QueryRow(ctx, `UPDATE own_keys SET retired_at = clock_timestamp(), verifies = $1 WHERE retired_at IS NULL RETURNING kid`, overlap).Scan(&old)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil
	}
	return old, err
}

// inSet is true for the keys that a key set names: a key stays in it while its
// private half is kept, or its time runs.
const inSet = `revoked_at IS NULL AND (removed_at IS NULL OR retired_at + verifies > clock_timestamp())`

// keySet is what peers are to know about the keys of this instance now. To a peer that has lost the key which signs, only the word of
// the identity key counts: alone, that has to revoke something. Where nothing was revoked, it is a key that nobody has.
func keySet(ctx context.Context, tx *Tx, lost bool) (*commands.KeySet, error) {
	set := &commands.KeySet{}
	if err := tx.QueryRow(ctx, `SELECT keys FROM instance`).Scan(&set.Version); err != nil {
		return nil, fmt.Errorf("reading the key set: %w", err)
	}
	rows, err := tx.Query(ctx, `SELECT pub, CASE WHEN retired_at IS NULL THEN 0 ELSE (extract(epoch FROM verifies) * 1000)::bigint END FROM own_keys
		WHERE `+inSet+` ORDER BY retired_at DESC NULLS FIRST LIMIT $1`, commands.MaxSetKeys)
	if err != nil {
		return nil, fmt.Errorf("reading the key set: %w", err)
	}
	if set.Keys, err = pgx.CollectRows(rows, pgx.RowToStructByPos[commands.SetKey]); err != nil {
		return nil, fmt.Errorf("reading the key set: %w", err)
	}
	rows, err = tx.Query(ctx, `SELECT kid, reason FROM own_keys WHERE revoked_at IS NOT NULL ORDER BY revoked_at DESC LIMIT $1`, commands.MaxSetRevoked)
	if err != nil {
		return nil, fmt.Errorf("reading the key set: %w", err)
	}
	var kid signing.KeyID
	var reason string
	_, err = pgx.ForEachRow(rows, []any{&kid, &reason}, func() error {
		if set.Revoked = append(set.Revoked, kid); len(set.Revoked) == 1 {
			set.Reason = commands.CleanReason(reason)
		}
		return nil
	})
	if err == nil && lost && len(set.Revoked) == 0 {
		err = revokeNobodys(set)
	}
	return set, err
}

// revokeNobodys revokes a key that has never been used, and whose private half is gone.
func revokeNobodys(set *commands.KeySet) error {
	pub, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		return fmt.Errorf("making a key to revoke: %w", err)
	}
	set.Revoked, set.Reason = []signing.KeyID{signing.KeyIDOf(pub)}, "a key that was never used: the peer has lost the newest key, so the identity key alone tells it"
	return nil
}

// sealKeySet signs a key set with the identity key and with the key kid, which the peer
// knows. One that revokes a key is signed by the identity key alone: a revoked key vouches
// for nothing, and a peer that has refused the set before knows no newer one.
func (db *DB) sealKeySet(kid signing.KeyID, set *commands.KeySet, m signing.Unsealed) (signing.Sealed, error) {
	if len(set.Revoked) > 0 {
		return db.ring.Identity.Seal(m.Type, m.Header, m.Body)
	}
	signer, err := db.SignerOf(kid)
	if err != nil {
		return signing.Sealed{}, err
	}
	return signer.Seal(m.Type, m.Header, m.Body, db.ring.Identity)
}

// An OwnKeyView is a signing key of this instance, for people.
type OwnKeyView struct {
	ID      signing.KeyID `json:"id"`
	State   string        `json:"state"` // current, old, ended or revoked
	Since   time.Time     `json:"since"`
	Retired *time.Time    `json:"retired_at,omitempty"`
	Until   *time.Time    `json:"verifies_until,omitempty"` // of an old one, at a peer that took its successor at once
	Revoked *time.Time    `json:"revoked_at,omitempty"`
	Reason  string        `json:"reason,omitempty"`
	Peers   []string      `json:"signs_for"` // towards these it signs
}

// A KeysView is what is known here about keys: this instance's, and its peers'.
type KeysView struct {
	Identity    signing.KeyID `json:"identity"`
	Fingerprint string        `json:"fingerprint"`
	Version     int64         `json:"version"` // of the key set
	Signing     []OwnKeyView  `json:"signing"` // the newest first
	Waiting     []string      `json:"waiting"` // peers that have not confirmed the newest key
	Peers       []PeerKeyView `json:"peers"`
}

// KeysView returns all of it.
func (db *DB) KeysView(ctx context.Context) (KeysView, error) {
	v := KeysView{Waiting: []string{}}
	if db.ring != nil {
		v.Identity, v.Fingerprint = db.ring.Identity.KeyID(), signing.Fingerprint(db.ring.Identity.Public())
	}
	err := db.Read(ctx, "reading the keys", func(ctx context.Context, conn *pgxpool.Conn) (err error) {
		if err := conn.QueryRow(ctx, `SELECT keys FROM instance`).Scan(&v.Version); err != nil {
			return err
		}
		rows, err := conn.Query(ctx, ownKeyViews)
		if err != nil {
			return err
		}
		if v.Signing, err = pgx.CollectRows(rows, pgx.RowToStructByPos[OwnKeyView]); err != nil {
			return err
		}
		if rows, err = conn.Query(ctx, peerKeyViews); err != nil {
			return err
		}
		v.Peers, err = pgx.CollectRows(rows, pgx.RowToStructByPos[PeerKeyView])
		return err
	})
	for _, k := range v.Signing {
		if k.State != "current" {
			v.Waiting = append(v.Waiting, k.Peers...)
		}
	}
	return v, err
}

const ownKeyViews = `SELECT k.kid, CASE WHEN k.revoked_at IS NOT NULL THEN 'revoked' WHEN k.retired_at IS NULL THEN 'current'
		WHEN k.removed_at IS NULL OR k.retired_at + k.verifies > clock_timestamp() THEN 'old' ELSE 'ended' END,
	k.made_at, k.retired_at, CASE WHEN k.revoked_at IS NULL THEN k.retired_at + k.verifies END, k.revoked_at, k.reason,
	ARRAY(SELECT c.peer_name FROM sequences s JOIN connections c ON c.id = s.conn
		WHERE s.kid = k.kid AND NOT has_ended(c.state) ORDER BY c.peer_name)
	FROM own_keys k ORDER BY k.made_at DESC`
