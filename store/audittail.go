package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/spawnmesh/spawnmesh/internal/audittree"
	"github.com/spawnmesh/spawnmesh/signing"
)

// An AuditTail is the end of the audit, which was held against the newest checkpoint.
type AuditTail struct {
	Leaves, Of int64
	At         time.Time // of the checkpoint
}

// CheckAuditTail holds the newest rows that the newest checkpoint covers against it, up to most: all that takes longer is for
// "audit verify". What does not fit is refused with the code [commands.AuditBroken].
func (db *DB) CheckAuditTail(ctx context.Context, identity *signing.Signer, most int64) (v AuditTail, err error) {
	err = db.Read(ctx, "holding the end of the audit against its checkpoint", func(ctx context.Context, conn *pgxpool.Conn) error {
		tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}) // retention goes on meanwhile
		if err != nil {
			return err
		}
		defer func() { _ = within(context.WithoutCancel(ctx), tx.Rollback) }() // nothing was written
		c, err := newestCheckpoint(ctx, tx, identity)
		if err != nil || c.Size == 0 {
			return err
		}
		from := max(0, c.Size-most)
		v = AuditTail{Leaves: c.Size - from, Of: c.Size, At: c.At}
		list, err := readLeaves(ctx, tx, from, int(v.Leaves))
		if err != nil {
			return err
		}
		return checkTail(ctx, tx, c.Checkpoint, from, list)
	})
	return v, err
}

// checkTail holds leaves, those of c from one on, against c.
func checkTail(ctx context.Context, tx pgx.Tx, c audittree.Checkpoint, from int64, list []audittree.Leaved) error {
	if n := c.Size - from - int64(len(list)); n != 0 {
		return brokenAudit("%d of the %d leaves of the checkpoint of %s are gone", n, c.Size, c.At.Format("2006-01-02 15:04:05 MST"))
	}
	tree, err := audittree.Continue(from, storedHashes(ctx, tx))
	if err != nil {
		return err
	}
	lost := int64(0)
	for _, l := range list {
		switch {
		case l.Row == nil:
			lost = max(lost, l.Seq)
		case audittree.Leaf(*l.Row) != l.Hash:
			return brokenAudit("row %d (%s by %s) is not what it was when it became leaf %d", l.Seq, l.Row.Action, l.Row.Actor, l.Leaf)
		}
		tree.Add(l.Hash)
	}
	if tree.Root() != c.Root {
		return brokenAudit("its first %d leaves are not those of the checkpoint of %s", c.Size, c.At.Format("2006-01-02 15:04:05 MST"))
	}
	if lost == 0 {
		return nil
	}
	pruned := int64(0)
	err = tx.QueryRow(ctx, `SELECT coalesce(max(object::bigint), 0) FROM audit WHERE action = 'audit.pruned' AND actor = 'self' AND object ~ '^[0-9]{1,18}$'`).Scan(&pruned)
	if err == nil && lost > pruned {
		err = brokenAudit("row %d is gone, and retention has removed none after row %d", lost, pruned)
	}
	return err
}
