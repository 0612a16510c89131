package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/spawnmesh/spawnmesh/internal/audittree"
	"github.com/spawnmesh/spawnmesh/signing"
)

// keptCheckpoints is how many checkpoints of its own an instance keeps. The newest one says all that those before say;
// they are for who wants to know when something was changed.
const keptCheckpoints = 1000

// A Checkpoint is one with the note that says it.
type Checkpoint struct {
	audittree.Checkpoint
	Note string
}

// Checkpoint signs what the tree is now, unless that was signed already. A tree that does not begin with the one
// of the last checkpoint is not signed.
func (db *DB) Checkpoint(ctx context.Context, identity *signing.Signer) (c Checkpoint, err error) {
	err = db.Tx(ctx, "signing a checkpoint of the audit", func(ctx context.Context, tx *Tx) error {
		tx.TellNobody()
		t, err := holdAuditTree(ctx, tx)
		if err != nil {
			return err
		}
		last, err := newestCheckpoint(ctx, tx, identity)
		if err != nil {
			return err
		}
		if err := extends(ctx, tx, t, last.Checkpoint); err != nil {
			return err
		}
		if c = last; last.Note != "" && last.Size == t.size && last.Era == t.era || t.size == 0 {
			return nil
		}
		c, err = sign(ctx, tx, t, identity)
		return err
	})
	return c, err
}

// extends refuses a tree that does not begin with what c says.
func extends(ctx context.Context, tx *Tx, t auditTree, c audittree.Checkpoint) error {
	if c.Size == 0 {
		return nil
	}
	if c.Size > t.size || c.Era > t.era {
		return brokenAudit("it has %d leaves, and the checkpoint of %s has %d", t.size, c.At.Format("2006-01-02 15:04:05 MST"), c.Size)
	}
	root, err := audittree.Root(c.Size, storedHashes(ctx, tx))
	if err == nil && root != c.Root {
		err = brokenAudit("its first %d leaves are not those of the checkpoint of %s", c.Size, c.At.Format("2006-01-02 15:04:05 MST"))
	}
	return err
}

func sign(ctx context.Context, tx *Tx, t auditTree, identity *signing.Signer) (c Checkpoint, err error) {
	c.Instance, c.Size, c.Era = tx.db.self, t.size, t.era
	if c.Root, err = audittree.Root(t.size, storedHashes(ctx, tx)); err != nil {
		return c, err
	}
	if err = tx.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&c.At); err != nil {
		return c, err
	}
	if c.Note, err = c.Sign(identity); err != nil {
		return c, err
	}
	var b pgx.Batch
	b.Queue(`INSERT INTO audit_checkpoints (era, size, note) VALUES ($1, $2, $3)`, c.Era, c.Size, []byte(c.Note))
	b.Queue(`DELETE FROM audit_checkpoints WHERE (era, size) IN (SELECT era, size FROM audit_checkpoints ORDER BY era DESC, size DESC OFFSET $1 LIMIT 100)`, keptCheckpoints)
	return c, tx.SendBatch(ctx, &b).Close()
}

type rowQuerier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// newestCheckpoint is the zero value where there is none.
func newestCheckpoint(ctx context.Context, q rowQuerier, identity *signing.Signer) (c Checkpoint, err error) {
	var signed []byte
	err = q.QueryRow(ctx, `SELECT note FROM audit_checkpoints ORDER BY era DESC, size DESC LIMIT 1`).Scan(&signed)
	if errors.Is(err, pgx.ErrNoRows) {
		return c, nil
	}
	if err != nil {
		return c, fmt.Errorf("reading the last checkpoint of the audit: %w", err)
	}
	c.Note = string(signed)
	if c.Checkpoint, err = audittree.Open(c.Note, identity.Public()); err != nil {
		return c, brokenAudit("its last checkpoint: %v", err)
	}
	return c, nil
}

// LastCheckpoint returns the newest checkpoint that was signed, the zero value where there is none.
func (db *DB) LastCheckpoint(ctx context.Context, identity *signing.Signer) (c Checkpoint, err error) {
	err = db.Read(ctx, "reading the last checkpoint of the audit", func(ctx context.Context, conn *pgxpool.Conn) error {
		c, err = newestCheckpoint(ctx, conn, identity)
		return err
	})
	return c, err
}

// ProveAudit is the proof that the tree of size to begins with that of size from.
func (db *DB) ProveAudit(ctx context.Context, from, to int64) (proof []audittree.Hash, err error) {
	err = db.Read(ctx, "proving that the audit was only added to", func(ctx context.Context, conn *pgxpool.Conn) error {
		proof, err = audittree.Prove(from, to, storedHashes(ctx, conn))
		return err
	})
	return proof, err
}
