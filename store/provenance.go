package store

import (
	"context"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
)

// A Provenance says which signed messages a result comes from. Who has their envelopes and the keys
// of both sides verifies it without this instance.
type Provenance struct {
	Self   signing.InstanceID
	Peer   signing.InstanceID // the other side of the connection
	Order  *SignedMessage     // nil = it is not kept any more
	Result *SignedMessage     // that ended the task; nil = none did, or it is not kept any more
}

// A SignedMessage names a message, and what signed it.
type SignedMessage struct {
	ID, Kind string
	SHA256   string // of its header, which is signed and names the digest of its body
	Key      signing.KeyID
	Signed   *time.Time // nil, and no key, where the signed bytes are not kept any more
}

// ProvenanceOf returns what the result of the order with a command comes from, at who gave it as at who took it.
func (db *DB) ProvenanceOf(ctx context.Context, conn, command string) (p Provenance, err error) {
	err = db.retry(ctx, func(ctx context.Context) error {
		p = Provenance{Self: db.self}
		rows, err := db.pool.Query(ctx, `SELECT c.peer, s.* FROM connections c LEFT JOIN (
				SELECT 'order' AS what, id::text, kind, digest, envelope FROM outbox WHERE id = $2
				UNION ALL SELECT 'order', id::text, kind, digest, envelope FROM inbox WHERE conn = $1 AND id = $2
				UNION ALL (SELECT 'result', id::text, kind, digest, envelope FROM inbox WHERE re = $2 AND (conn = $1) IS TRUE AND code = '' AND kind = ANY ($3) ORDER BY seq DESC LIMIT 1)
				UNION ALL (SELECT 'result', id::text, kind, digest, envelope FROM outbox WHERE re = $2 AND kind = ANY ($3) ORDER BY seq DESC LIMIT 1)
			) AS s ON true WHERE c.id = $1`, conn, command, []string{string(commands.ResultKind), string(commands.RefusedKind)})
		if err != nil {
			return err
		}
		var what, id, kind *string
		var digest, envelope []byte
		_, err = pgx.ForEachRow(rows, []any{&p.Peer, &what, &id, &kind, &digest, &envelope}, func() error {
			switch {
			case what == nil:
			case *what == "order":
				p.Order = signedMessage(*id, *kind, digest, envelope)
			default:
				p.Result = signedMessage(*id, *kind, digest, envelope)
			}
			return nil
		})
		return err
	})
	if err != nil {
		return p, fmt.Errorf("reading where a result comes from: %w", err)
	}
	return p, nil
}

func signedMessage(id, kind string, digest, envelope []byte) *SignedMessage {
	m := &SignedMessage{ID: id, Kind: kind, SHA256: hex.EncodeToString(digest)}
	if len(envelope) == 0 {
		return m
	}
	if was, err := signing.Unseal(envelope, 0); err == nil { // it was verified when it came, or is our own
		at := time.UnixMilli(was.Header.Iat)
		m.Key, m.Signed = was.Header.Kid, &at
	}
	return m
}
