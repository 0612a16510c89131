package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/spawnmesh/spawnmesh/commands"
)

// An Invite lets one unknown instance ask for a connection under Name.
// ProofKey is derived from the token's secret, which is never stored.
type Invite struct {
	ID       string
	Name     string
	ProofKey []byte
	TTL      time.Duration
	Uses     int
	Actor    string
}

// AddInvite stores an invite. The error is [commands.Conflict] when a live
// connection has the name already.
func (db *DB) AddInvite(ctx context.Context, v Invite) (expires time.Time, err error) {
	err = db.Tx(ctx, "inviting "+v.Name, func(ctx context.Context, tx *Tx) error {
		var taken bool
		if err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM connections WHERE peer_name = $1 AND NOT has_ended(state))`,
			v.Name).Scan(&taken); err != nil {
			return err
		}
		if taken {
			return commands.Refuse(commands.Conflict, "a connection named %s is there already", v.Name).
				Hinting("choose another --name, or revoke it").Running("connections", "revoke", v.Name, "--reason", "WHY")
		}
		err := tx.QueryRow(ctx, `INSERT INTO invites (id, name, proof_key, uses_left, expires_at, created_by)
			VALUES ($1, $2, $3, $4, clock_timestamp() + $5, $6) ON CONFLICT (id) DO UPDATE SET id = excluded.id RETURNING expires_at`,
			v.ID, v.Name, v.ProofKey, v.Uses, v.TTL, v.Actor).Scan(&expires)
		if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == "23514" {
			return commands.NotAName(v.Name)
		}
		if err != nil {
			return err
		}
		tx.Audit(AuditRow{Actor: v.Actor, Action: "invite.created", Object: v.Name})
		return nil
	})
	return expires, err
}

// FindInvite returns the name and proof key of a stored invite, in whatever state
// it is: whether it can be used is found out by using it, [DB.AddConnection]. One
// that is not there is [commands.NotFound].
func (db *DB) FindInvite(ctx context.Context, id string) (v Invite, err error) {
	err = db.pool.QueryRow(ctx, `SELECT id::text, name, proof_key FROM invites WHERE id = $1`, id).Scan(&v.ID, &v.Name, &v.ProofKey)
	if errors.Is(err, pgx.ErrNoRows) {
		return v, commands.Refuse(commands.NotFound, "no such invite")
	}
	if err != nil {
		return v, fmt.Errorf("looking up invite %s: %w", id, err)
	}
	return v, nil
}

// useInvite uses up an invite that is open, for the connection of tx.
func useInvite(ctx context.Context, tx *Tx, id string) error {
	tag, err := tx.Exec(ctx, `UPDATE invites AS i SET uses_left = uses_left - 1 WHERE i.id = $1 AND `+inviteState+` = 'open'`, id)
	if err != nil {
		return fmt.Errorf("using up invite %s: %w", id, err)
	}
	if tag.RowsAffected() == 1 {
		return nil
	}
	var state InviteState
	if err := tx.QueryRow(ctx, `SELECT `+inviteState+` FROM invites i WHERE id = $1`, id).Scan(&state); err != nil {
		return fmt.Errorf("looking up invite %s: %w", id, err)
	}
	return commands.Refuse(commands.NotFound, "%s", state.why())
}

// maxInviteKeys bounds how many invites can be shown by those who join.
const maxInviteKeys = 10_000

// InviteKeys returns names and proof keys of the newest invites by id, also of
// those that cannot be used any more: who shows one learns that by using it.
func (db *DB) InviteKeys(ctx context.Context) (map[string]Invite, error) {
	rows, err := db.pool.Query(ctx, `SELECT id::text, name, proof_key FROM invites ORDER BY created_at DESC LIMIT $1`, maxInviteKeys)
	if err != nil {
		return nil, fmt.Errorf("reading the keys of the invites: %w", err)
	}
	keys := map[string]Invite{}
	var v Invite
	_, err = pgx.ForEachRow(rows, []any{&v.ID, &v.Name, &v.ProofKey}, func() error {
		keys[v.ID] = Invite{ID: v.ID, Name: v.Name, ProofKey: slices.Clone(v.ProofKey)}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading the keys of the invites: %w", err)
	}
	return keys, nil
}

// An InviteState says what has become of an invite.
type InviteState string

// The states of an invite. One that is open can be used.
const (
	InviteOpen    InviteState = "open"
	InviteUsed    InviteState = "used"
	InviteExpired InviteState = "expired"
	InviteRevoked InviteState = "revoked"
)

// why says what is wrong with an invite in this state; "" for an open one.
func (s InviteState) why() string {
	return map[InviteState]string{InviteUsed: "invite was used before", InviteExpired: "invite has expired", InviteRevoked: "invite was revoked"}[s]
}

// A used invite counts as used, whatever has happened to it since.
const inviteState = `CASE WHEN i.uses_left = 0 THEN 'used' WHEN i.revoked_at IS NOT NULL THEN 'revoked' WHEN i.expires_at <= clock_timestamp() THEN 'expired' ELSE 'open' END`

// An InviteView is an invite as its operator sees it: nothing of it is secret.
type InviteView struct {
	ID         string      `json:"id"`
	Name       string      `json:"name"`
	State      InviteState `json:"state"`
	Expires    time.Time   `json:"expires"`
	By         string      `json:"by"`
	CreatedAt  time.Time   `json:"created_at"`
	RevokedAt  *time.Time  `json:"revoked_at,omitempty"`
	Connection string      `json:"connection,omitempty"` // that it was used for
}

const inviteSQL = `SELECT i.id::text, i.name, ` + inviteState + `, i.expires_at, i.created_by, i.created_at, i.revoked_at, coalesce((SELECT c.id::text FROM connections c WHERE c.invite = i.id ORDER BY c.created_at DESC LIMIT 1), '')
	FROM invites i `

// Invites returns the invites that are remembered, the newest first: those that
// ended a month ago are not.
func (db *DB) Invites(ctx context.Context) ([]InviteView, error) {
	rows, err := db.pool.Query(ctx, inviteSQL+`ORDER BY i.created_at DESC, i.id DESC`)
	if err != nil {
		return nil, fmt.Errorf("reading the invites: %w", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[InviteView])
	if err != nil {
		return nil, fmt.Errorf("reading the invites: %w", err)
	}
	return list, nil
}

// RevokeInvite ends an invite that nobody has used: from the commit on it lets
// nobody in. Revoking it again is no error; one that was used or has expired is
// [commands.Conflict].
func (db *DB) RevokeInvite(ctx context.Context, id, reason, actor string) (v InviteView, err error) {
	if err := commands.CheckReason(reason); err != nil {
		return v, err
	}
	err = db.Tx(ctx, "revoking invite "+id, func(ctx context.Context, tx *Tx) error {
		tag, err := tx.Exec(ctx, `UPDATE invites AS i SET revoked_at = clock_timestamp() WHERE i.id = $1 AND `+inviteState+` = 'open'`, id)
		if err != nil {
			return err
		}
		rows, err := tx.Query(ctx, inviteSQL+`WHERE i.id = $1`, id)
		if err != nil {
			return err
		}
		if v, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[InviteView]); err != nil {
			return err
		}
		switch {
		case tag.RowsAffected() == 1:
			tx.Audit(AuditRow{Actor: actor, Action: "invite.revoked", Object: v.Name, Why: reason})
		case v.State == InviteUsed:
			return commands.Refuse(commands.Conflict, "the invite for %s was used already", v.Name).
				Hinting("end what came of it").Running("connections", "revoke", cmp.Or(v.Connection, v.Name), "--reason", "WHY")
		case v.State != InviteRevoked:
			return commands.Refuse(commands.Conflict, "the invite for %s has expired already, at %s", v.Name, v.Expires.UTC().Format(time.RFC3339))
		}
		return nil
	})
	return v, err
}
