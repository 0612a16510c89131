package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
)

// Adopt takes over spawn orders that this instance gave over c and no longer knows,
// because its database was restored from a backup: its own signed messages, as the
// peer kept them. Each becomes a mirror again, which the reports of the peer then
// move; the peer has answered it, so it does not expire as if it had not. An order that was
// given again under its own id since, and asks for the same, becomes the old one: the peer
// has that. Whoever repeats the request finds it all the same. What this instance
// has not signed, or has given before number from and was not asked for, changes nothing and is
// returned: why it is strange. Only [DB.Recall], which holds the connection, calls it.
func (tx *Tx) Adopt(ctx context.Context, c Connection, from int64, envelopes [][]byte) (strange []error, err error) {
	if len(envelopes) == 0 {
		return nil, nil
	}
	v := signing.Verifier{Self: c.Peer, Conn: c.ID, Epoch: c.Epoch, Heads: &signing.Heads{}}
	if v.Keys, err = tx.ownKeys(ctx); err != nil {
		return nil, err
	}
	for _, envelope := range envelopes {
		o, err := openOwn(v, envelope)
		if err == nil && o.header.Seq < from {
			err = commands.Refuse(commands.Validation, "order %d is older than number %d, from which on orders were asked for", o.header.Seq, from)
		}
		if err != nil {
			strange = append(strange, err)
			continue
		}
		if err := tx.adopt(ctx, c, o); err != nil {
			return nil, err
		}
	}
	return strange, nil
}

// ownKeys are the keys that this instance signs and signed with.
func (tx *Tx) ownKeys(ctx context.Context) (map[signing.KeyID]signing.PeerKey, error) {
	rows, err := tx.Query(ctx, `SELECT kid, pub FROM own_keys WHERE revoked_at IS NULL`)
	if err != nil {
		return nil, fmt.Errorf("reading this instance's keys: %w", err)
	}
	keys := map[signing.KeyID]signing.PeerKey{}
	k := signing.PeerKey{Owner: tx.db.self}
	_, err = pgx.ForEachRow(rows, []any{&k.ID, (*[]byte)(&k.Public)}, func() error {
		k.Public = bytes.Clone(k.Public)
		keys[k.ID] = k
		return nil
	})
	return keys, err
}

// openOwn opens a spawn message of this instance. It was accepted in its time.
func openOwn(v signing.Verifier, envelope []byte) (o ownOrder, err error) {
	opened, err := v.Reopen(envelope)
	if err != nil {
		return o, err
	}
	command, err := commands.Parse(opened)
	if err != nil {
		return o, err
	}
	spawn, ok := command.Body.(*commands.Spawn)
	if !ok {
		return o, commands.Refuse(commands.Validation, "a message of kind %s is no order", opened.Header().Kind)
	}
	digest, body := opened.Digest(), sha256.Sum256(opened.Body())
	return ownOrder{opened.Header(), digest[:], body[:], spawn, envelope}, nil
}

type ownOrder struct {
	header   signing.Header
	digest   []byte // of the header
	body     []byte // digest of the body
	spawn    *commands.Spawn
	envelope []byte
}

// Adopted is who has ordered what was adopted.
const Adopted = "restored"

func (tx *Tx) adopt(ctx context.Context, c Connection, o ownOrder) error {
	h := o.header
	given, expires := time.UnixMilli(h.Iat), time.UnixMilli(h.Exp)
	request, err := SpawnOrder{Conn: c.ID, Spawn: o.spawn, Life: expires.Sub(given)}.digest()
	if err != nil {
		return err
	}
	var again string
	err = tx.QueryRow(ctx, `
		WITH old AS (
			SELECT command FROM mirrors WHERE task = $1
		), adopted AS (
			INSERT INTO mirrors AS m (task, conn, title, priority, command, command_digest, request_digest, created_by, spec, expires_at, created_at, accepted_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, '`+Adopted+`', $8, $9, $10, clock_timestamp())
			ON CONFLICT (task) DO UPDATE SET command = excluded.command, command_digest = excluded.command_digest, expires_at = excluded.expires_at, accepted_at = excluded.accepted_at
				WHERE m.conn = excluded.conn AND m.spec - 'trace' = excluded.spec - 'trace' AND m.command <> excluded.command AND m.ended_at IS NULL
			RETURNING task
		)
		SELECT coalesce((SELECT old.command::text FROM old, adopted), '') || CASE WHEN EXISTS (SELECT FROM adopted) THEN '' ELSE '-' END`,
		o.spawn.Task, c.ID, o.spawn.Title, o.spawn.Priority, h.ID, o.body, request, o.spawn.WithoutBox(), expires, given).Scan(&again)
	if err != nil {
		return fmt.Errorf("taking over order %s: %w", h.ID, err)
	}
	if again == "-" {
		return nil // it is known
	}
	tx.Audit(AuditRow{Actor: string(c.Peer), Action: "task.restored", Object: o.spawn.Task, Code: string(commands.Resync), Conn: c.ID, Message: h.ID,
		Why: "the order was given after the backup, and the peer has it"})
	if err := tx.unhear(ctx, c.ID, o.spawn.Task, h.ID); err != nil {
		return err
	}
	// The peer has it, and may lose it: then it is sent again as any other that the peer had confirmed. Its number may be
	// above ours, from a life after an earlier restore of the same backup, and is not given again.
	_, err = tx.Exec(ctx, `
		WITH numbers AS (
			UPDATE sequences SET last = greatest(last, $4) WHERE conn = $3
		), kept AS (
			INSERT INTO outbox (id, conn, seq, queue, kind, digest, task, exp, created_at, envelope, body)
			VALUES ($2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) ON CONFLICT DO NOTHING RETURNING seq
		), closed AS (
			SELECT seq FROM kept UNION ALL SELECT seq FROM outbox WHERE id = nullif($1, '')::uuid AND conn = $3
		)
		UPDATE confirmed SET numbers = numbers + (SELECT range_agg(int8range(seq, seq + 1)) FROM closed) WHERE conn = $3 AND EXISTS (SELECT FROM closed)`,
		again, h.ID, c.ID, h.Seq, commands.QueueRun, commands.SpawnKind, o.digest, o.spawn.Task, expires, given, o.envelope, o.body)
	if err != nil {
		return fmt.Errorf("keeping order %s for a peer that may lose it: %w", h.ID, err)
	}
	return nil
}

// unhear forgets the answers to command that came while nobody here knew it, and had
// no effect. The peer finds them missing and sends them again.
func (tx *Tx) unhear(ctx context.Context, conn, task, command string) error {
	_, err := tx.Exec(ctx, `
		WITH heard AS (DELETE FROM inbox WHERE conn = $1 AND task = $2 AND re = $3 RETURNING seq, length(envelope) AS size)
		UPDATE sequences SET stored = stored - (SELECT range_agg(int8range(seq, seq + 1)) FROM heard),
			kept_rows = kept_rows - (SELECT count(*) FROM heard), kept_bytes = kept_bytes - (SELECT sum(size) FROM heard) WHERE conn = $1 AND EXISTS (SELECT FROM heard)`, conn, task, command)
	if err != nil {
		return fmt.Errorf("forgetting what was said about order %s: %w", command, err)
	}
	return nil
}
