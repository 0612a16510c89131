package node

import (
	"context"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/streak"
	"github.com/spawnmesh/spawnmesh/internal/wait"
	"github.com/spawnmesh/spawnmesh/store"
)

const (
	// treePause is the least time between two looks for audit rows that are no leaves of the tree yet.
	treePause = 5 * time.Second
	// A checkpoint is signed after that many leaves, or that time while there are any new ones.
	checkpointRows  = 1000
	checkpointEvery = 5 * time.Minute
)

// A notary makes leaves of the tree of audit rows, and signs checkpoints of it.
type notary struct {
	news   wait.Signal
	broken bool             // it is said that the audit is
	failed *streak.Failures // of anything else
}

func newNotary() notary {
	return notary{news: wait.NewSignal(), failed: &streak.Failures{}}
}

func (y *notary) changed(store.Wrote) { y.news.Send() }

// signAudit keeps the tree of the audit up to date, and its checkpoints, until ctx ends.
func (n *Node) signAudit(ctx context.Context) error {
	var signed int64 // the size of what was signed last
	var at time.Time // when; what is not signed at the start is signed at once
	for ctx.Err() == nil {
		size, err := n.Instance.DB.GrowAuditTree(ctx)
		if err == nil && size > signed && (at.IsZero() || size-signed >= checkpointRows || time.Since(at) >= checkpointEvery) {
			if err = n.checkpoint(ctx); err == nil {
				signed, at = size, time.Now()
			}
		}
		n.noteAudit(ctx, err)
		due := checkpointEvery
		if err == nil && size > signed {
			due = time.Until(at.Add(checkpointEvery))
		}
		_ = wait.For(ctx, treePause)
		select {
		case <-ctx.Done():
		case <-n.notary.news:
		case <-time.After(due):
		}
	}
	return nil
}

// checkpoint signs what the tree is now.
func (n *Node) checkpoint(ctx context.Context) error {
	_, err := n.Instance.DB.Checkpoint(ctx, n.Instance.Keys.Identity)
	return err
}

// noteAudit says once that the audit is broken, and what else keeps failing.
func (n *Node) noteAudit(ctx context.Context, err error) {
	y := &n.notary
	broken := commands.CodeOf(err) == commands.AuditBroken
	switch {
	case ctx.Err() != nil:
	case broken && !y.broken:
		n.Log.ErrorContext(ctx, "the audit was changed, and is signed no more", "code", commands.AuditBroken, "err", err)
	case err != nil && !broken && y.failed.Note(err):
		n.Log.ErrorContext(ctx, "adding to the tree of the audit", "err", err)
	case err == nil && y.failed.Note(nil):
		n.Log.InfoContext(ctx, "the tree of the audit is added to again")
	}
	y.broken = broken
}
