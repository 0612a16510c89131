package store

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/spawnmesh/spawnmesh/commands"
)

// A NewToken is a token that is to be known from now on, by the digest of its text.
type NewToken struct {
	ID        string
	Digest    []byte
	Name      string
	Role      string
	Workspace string
	Life      time.Duration
	Actor     string
}

// A TokenState says whether a token can be used.
type TokenState string

// The states of a token.
const (
	TokenValid    TokenState = "valid"
	TokenExpired  TokenState = "expired"
	TokenRevoked  TokenState = "revoked"
	TokenRestored TokenState = "restored" // it lets nobody in until an owner confirms it: it may have been revoked since the backup
)

const tokenState = `CASE WHEN t.revoked_at < t.expires_at THEN 'revoked' WHEN t.expires_at <= clock_timestamp() THEN 'expired' WHEN t.restored THEN 'restored' ELSE 'valid' END`

// A TokenView is a token as its owner sees it: nothing of it is secret.
type TokenView struct {
	ID        string
	Name      string
	State     TokenState
	Role      string
	Workspace string
	Expires   time.Time
	By        string
	CreatedAt time.Time
	RevokedAt *time.Time
	UsedAt    *time.Time // up to a minute before the last time
}

const tokenSQL = `SELECT t.id, t.name, ` + tokenState + `, t.role, t.workspace, t.expires_at, t.created_by, t.created_at, CASE WHEN t.revoked_at < t.expires_at THEN t.revoked_at END, t.used_at FROM tokens t `

// AddToken stores a token. No two that can be used have one name: the audit tells them apart by it.
func (db *DB) AddToken(ctx context.Context, v NewToken) (expires time.Time, err error) {
	err = db.Tx(ctx, "making the token "+v.Name, func(ctx context.Context, tx *Tx) error {
		if _, err := tx.Exec(ctx, `UPDATE tokens SET revoked_at = expires_at WHERE name = $1 AND revoked_at IS NULL AND expires_at <= clock_timestamp()`, v.Name); err != nil {
			return err
		}
		err := tx.QueryRow(ctx, `INSERT INTO tokens (id, digest, name, role, workspace, expires_at, created_by)
			VALUES ($1, $2, $3, $4, $5, clock_timestamp() + $6, $7) RETURNING expires_at`,
			v.ID, v.Digest, v.Name, v.Role, v.Workspace, v.Life, v.Actor).Scan(&expires)
		if err != nil {
			return v.refuse(err)
		}
		tx.Audit(AuditRow{Actor: v.Actor, Action: "token.created", Object: v.Name, Why: fmt.Sprintf("id %s, %s in %s, until %s", v.ID, v.Role, v.Workspace, expires.UTC().Format(time.RFC3339))})
		return nil
	})
	return expires, err
}

// refuse puts what the table does not take into words.
func (v NewToken) refuse(err error) error {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return err
	}
	switch pg.ConstraintName {
	case "tokens_name":
		return commands.Refuse(commands.Conflict, "a token named %s is there already", v.Name).Hinting("choose another name, or end it").Running("token", "revoke", v.Name)
	case "name_is_a_name":
		return commands.NotAName(v.Name)
	case "workspace_is_a_name":
		return commands.Refuse(commands.Validation, "workspace %q is neither * nor 1 to 63 lower-case letters, digits and dashes", commands.Clip(v.Workspace))
	}
	return err
}

// Tokens returns the tokens that are remembered, the newest first.
func (db *DB) Tokens(ctx context.Context) ([]TokenView, error) {
	rows, err := db.pool.Query(ctx, tokenSQL+`ORDER BY t.created_at DESC, t.id`)
	if err == nil {
		var list []TokenView
		if list, err = pgx.CollectRows(rows, pgx.RowToStructByPos[TokenView]); err == nil {
			return list, nil
		}
	}
	return nil, fmt.Errorf("reading the tokens: %w", err)
}

// RevokeToken ends a token, which is named by its id, or by its name where it was not revoked before: from the
// commit on it lets nobody in. Revoking it again is no error.
func (db *DB) RevokeToken(ctx context.Context, text, reason, actor string) (v TokenView, err error) {
	if err := commands.CheckReason(reason); err != nil {
		return v, err
	}
	err = db.Tx(ctx, "revoking a token", func(ctx context.Context, tx *Tx) error {
		if v, err = holdToken(ctx, tx, text); err != nil || v.State == TokenRevoked {
			return err
		}
		if v.State == TokenExpired {
			return v.expired()
		}
		tx.Audit(AuditRow{Actor: actor, Action: "token.revoked", Object: v.Name, Why: reason})
		v.State = TokenRevoked
		return tx.QueryRow(ctx, `UPDATE tokens SET revoked_at = clock_timestamp() WHERE id = $1 RETURNING revoked_at`, v.ID).Scan(&v.RevokedAt)
	})
	return v, err
}

// holdToken holds a token until the transaction ends, which is named by its id, or by its name.
func holdToken(ctx context.Context, tx *Tx, text string) (v TokenView, err error) {
	rows, err := tx.Query(ctx, tokenSQL+`WHERE t.id = $1 OR t.name = $1 ORDER BY t.id = $1 DESC, t.revoked_at IS NULL DESC, t.created_at DESC LIMIT 1 FOR UPDATE`, text)
	if err != nil {
		return v, err
	}
	v, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[TokenView])
	if errors.Is(err, pgx.ErrNoRows) {
		err = commands.Refuse(commands.NotFound, "there is no token with the id or the name %q", commands.Clip(text)).Hinting("see").Running("token", "list")
	}
	return v, err
}

func (v TokenView) expired() error {
	return commands.Refuse(commands.Conflict, "the token %s has expired already, at %s", v.Name, v.Expires.UTC().Format(time.RFC3339))
}

// A TokenUse is a token that was shown.
type TokenUse struct {
	Name, Role, Workspace string
}

// UseToken finds the token with an id and a digest, and notes that it was used, once a minute. One that cannot be used is
// [commands.Unauthenticated]; who does not have its secret is not told why.
func (db *DB) UseToken(ctx context.Context, id string, digest []byte) (u TokenUse, err error) {
	var kept []byte
	var state TokenState
	var expires time.Time
	var stale bool
	err = db.pool.QueryRow(ctx, `SELECT t.name, t.role, t.workspace, t.digest, `+tokenState+`, t.expires_at,
		t.used_at IS NULL OR t.used_at NOT BETWEEN clock_timestamp() - interval '1 minute' AND clock_timestamp() FROM tokens t WHERE t.id = $1`, id).
		Scan(&u.Name, &u.Role, &u.Workspace, &kept, &state, &expires, &stale)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return u, fmt.Errorf("looking up a token: %w", err)
	}
	switch {
	case err != nil || subtle.ConstantTimeCompare(kept, digest) != 1:
		return u, commands.Refuse(commands.Unauthenticated, "the token is not known here").Hinting("ask an owner of this instance for one; token list shows there which are known")
	case state == TokenRevoked:
		return u, commands.Refuse(commands.Unauthenticated, "the token %s was revoked", u.Name).Hinting("ask an owner of this instance for another one")
	case state == TokenExpired:
		return u, commands.Refuse(commands.Unauthenticated, "the token %s has expired, at %s", u.Name, expires.UTC().Format(time.RFC3339)).Hinting("ask an owner of this instance for another one")
	case state == TokenRestored:
		return u, commands.Refuse(commands.Unauthenticated, "the token %s is from before this instance was restored from a backup, and nobody has confirmed it since", u.Name).
			Hinting("an owner confirms it, unless it was revoked since the backup, %s%s", commands.OnItsHost, commands.Line("token", "confirm", u.Name))
	case stale:
		// What is asked does not fail for this.
		_, _ = db.pool.Exec(ctx, `UPDATE tokens SET used_at = clock_timestamp() WHERE id = $1`, id)
	}
	return u, nil
}

// ValidTokens returns those of the tokens with these ids that can be used.
func (db *DB) ValidTokens(ctx context.Context, ids []string) ([]string, error) {
	rows, err := db.pool.Query(ctx, `SELECT t.id FROM tokens t WHERE t.id = ANY ($1) AND `+tokenState+` = 'valid'`, ids)
	if err == nil {
		ids, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	if err != nil {
		return nil, fmt.Errorf("looking up tokens: %w", err)
	}
	return ids, nil
}
