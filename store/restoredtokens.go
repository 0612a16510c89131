package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
)

// holdTokens lets nobody in by a token of a database that was restored, until an owner confirms it: it may have been
// revoked since.
func holdTokens(ctx context.Context, tx *Tx) error {
	rows, err := tx.Query(ctx, `UPDATE tokens SET restored = true WHERE revoked_at IS NULL AND expires_at > clock_timestamp() AND NOT restored RETURNING name`)
	if err != nil {
		return fmt.Errorf("holding the tokens: %w", err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, name := range names {
		tx.Audit(AuditRow{Actor: "self", Action: "token.held", Object: name, Why: Restored})
	}
	return err
}

// ConfirmToken lets a token be used again that is from before a restore, which is named by its id, or by its name.
// Confirming one that is valid is no error.
func (db *DB) ConfirmToken(ctx context.Context, text, reason, actor string) (v TokenView, err error) {
	if err := commands.CheckReason(reason); err != nil {
		return v, err
	}
	err = db.Tx(ctx, "confirming a token", func(ctx context.Context, tx *Tx) error {
		if v, err = holdToken(ctx, tx, text); err != nil {
			return err
		}
		switch v.State {
		case TokenExpired:
			return v.expired()
		case TokenRevoked:
			return commands.Refuse(commands.Conflict, "the token %s was revoked", v.Name).Hinting("make another one").Running("token", "create", "--help")
		case TokenRestored:
			v.State = TokenValid
			tx.Audit(AuditRow{Actor: actor, Action: "token.confirmed", Object: v.Name, Why: reason})
			_, err = tx.Exec(ctx, `UPDATE tokens SET restored = false WHERE id = $1`, v.ID)
		}
		return err
	})
	return v, err
}
