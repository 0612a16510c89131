package store

import (
	"context"
	"errors"
	"fmt"
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
		if err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM connections WHERE peer_name = $1 AND state NOT IN ('revoked', 'rejected'))`,
			v.Name).Scan(&taken); err != nil {
			return err
		}
		if taken {
			return commands.Refuse(commands.Conflict, "a connection named %s is there already", v.Name).
				Hinting("choose another --name, or revoke it: spawnmesh connections revoke %s --reason ...", v.Name)
		}
		err := tx.QueryRow(ctx, `INSERT INTO invites (id, name, proof_key, uses_left, expires_at, created_by)
			VALUES ($1, $2, $3, $4, clock_timestamp() + $5, $6) ON CONFLICT (id) DO UPDATE SET id = excluded.id RETURNING expires_at`,
			v.ID, v.Name, v.ProofKey, v.Uses, v.TTL, v.Actor).Scan(&expires)
		if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == "23514" {
			return commands.Refuse(commands.Validation, "name %q is not 1 to 63 lower-case letters, digits and dashes", v.Name)
		}
		if err != nil {
			return err
		}
		tx.Audit(AuditRow{Actor: v.Actor, Action: "invite.created", Object: v.Name})
		return nil
	})
	return expires, err
}

// FindInvite returns the name and proof key of a stored invite, whether or not
// it can still be used: using it up is [DB.AddConnection]'s. why tells the hub's
// operator, never the caller, what is wrong with it.
func (db *DB) FindInvite(ctx context.Context, id string) (v Invite, why string, err error) {
	var expired, revoked bool
	err = db.pool.QueryRow(ctx, `SELECT id::text, name, proof_key, uses_left, expires_at <= clock_timestamp(), revoked_at IS NOT NULL
		FROM invites WHERE id = $1`, id).Scan(&v.ID, &v.Name, &v.ProofKey, &v.Uses, &expired, &revoked)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return v, "no such invite", nil
	case err != nil:
		return v, "", fmt.Errorf("looking up invite %s: %w", id, err)
	case revoked:
		return v, "invite was revoked", nil
	case expired:
		return v, "invite has expired", nil
	}
	return v, "", nil
}
