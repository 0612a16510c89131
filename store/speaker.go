package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
)

// A Speaker is who says something that is not stored: the peer of a connection, with the
// key that signed it. The database decides whether the key is valid when it has its effect:
// what was read of keys before may be older than a revocation.
type Speaker struct {
	Conn string
	Key  signing.KeyID
}

// keyEnded is why a key counts no more, "" where it does.
const keyEnded = `CASE WHEN revoked_at <= clock_timestamp() THEN 'KEY_REVOKED' WHEN not_after < clock_timestamp() THEN 'KEY_WINDOW' ELSE '' END`

// refused says why nothing that by has signed has an effect, nil where it has.
func (by Speaker) refused(code signing.Code) error {
	if code == "" {
		return nil
	}
	return commands.Refuse(code, "the key %s of the peer was revoked, or its time has passed", by.Key)
}

// Speaks ends the transaction where the key of by has ended. Else it holds the key: an end
// of the key waits for the transaction.
func (tx *Tx) Speaks(ctx context.Context, by Speaker) error {
	var code signing.Code
	err := tx.QueryRow(ctx, `SELECT `+keyEnded+` FROM keys WHERE conn = $1 AND kid = $2 AND use <> 'sealing' FOR SHARE`, by.Conn, by.Key).Scan(&code)
	if errors.Is(err, pgx.ErrNoRows) {
		code, err = signing.KeyUnknown, nil
	}
	if err != nil {
		return fmt.Errorf("reading the key of a message: %w", err)
	}
	return by.refused(code)
}

// SpeakerEnded reports whether err says that the key of a speaker has ended.
func SpeakerEnded(err error) (*commands.Refused, bool) {
	r, ok := errors.AsType[*commands.Refused](err)
	return r, ok && (r.Code == signing.KeyRevoked || r.Code == signing.KeyWindow || r.Code == signing.KeyUnknown)
}
