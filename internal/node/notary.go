package node

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/control"
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
	broken atomic.Pointer[commands.Refused] // why the audit is, which was said; nil = it is whole as far as is known
	failed streak.Failures                  // of anything else
}

func (y *notary) changed(store.Wrote) { y.news.Send() }

// signAudit keeps the tree of the audit up to date, and its checkpoints, until ctx ends.
func (n *Node) signAudit(ctx context.Context) error {
	var signed int64 // the size of what was signed last
	var at time.Time // when; what is not signed at the start is signed at once
	for ctx.Err() == nil {
		size, err := n.Instance.DB.GrowAuditTree(ctx)
		if err == nil && dueToSign(size, signed, time.Since(at)) {
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

// dueToSign reports whether a tree of so many leaves is signed now, of which some were signed so long ago.
func dueToSign(size, signed int64, ago time.Duration) bool {
	return size > signed && (signed == 0 || size-signed >= checkpointRows || ago >= checkpointEvery)
}

// checkpoint signs what the tree is now.
func (n *Node) checkpoint(ctx context.Context) error {
	c, err := n.Instance.DB.Checkpoint(ctx, n.Instance.Keys.Identity)
	if err == nil && n.board != nil { // an instance at rest has no peers
		n.board.ShowCheckpoint(c)
	}
	return err
}

// noteAudit says once that the audit is broken, and what else keeps failing.
func (n *Node) noteAudit(ctx context.Context, err error) {
	y := n.notary
	broken, _ := errors.AsType[*commands.Refused](err)
	if broken != nil && broken.Code != commands.AuditBroken {
		broken = nil
	}
	switch {
	case ctx.Err() != nil:
		return
	case broken != nil && y.broken.Load() == nil:
		n.Log.ErrorContext(ctx, "the audit was changed, and is signed no more", "code", commands.AuditBroken, "err", err)
	case err != nil && broken == nil && y.failed.Note(err):
		n.Log.ErrorContext(ctx, "adding to the tree of the audit", "err", err)
	case err == nil && y.failed.Note(nil):
		n.Log.InfoContext(ctx, "the tree of the audit is added to again")
	}
	if err == nil || broken != nil { // else nothing is known of the audit
		y.broken.Store(broken)
	}
}

// checkAudit says what is wrong with the audit of this instance, here and as peers see it.
func (n *Node) checkAudit() (list []control.Check) {
	if r := n.notary.broken.Load(); r != nil {
		list = append(list, control.Check{Name: "audit", Problem: r.Why, Run: []string{"audit", "verify"}})
	}
	for _, s := range n.living() {
		if v := s.Says; v.Audit != nil && v.Audit.Refused != "" {
			list = append(list, control.Check{Name: "audit at " + s.Name, Problem: s.Name + " refuses the audit of this instance: " + v.Audit.Refused + "; ask its operator for the checkpoint that it keeps, and hold the audit against that", Run: []string{"audit", "verify", "--checkpoint", "FILE"}})
		}
	}
	return list
}

// checkPeerAudits names the audits of peers that are not what they were.
func (n *Node) checkPeerAudits(ctx context.Context) (list []control.Check) {
	peers, err := n.Instance.DB.PeerCheckpoints(ctx, "")
	if err != nil {
		return []control.Check{control.NewCheck("audits of peers", err)}
	}
	last := ""
	for _, p := range peers { // the newest era of each comes first
		if p.Conn != last && p.Refused != "" {
			list = append(list, control.Check{Name: "audit of " + p.Peer, Problem: p.Why, Run: []string{"audit", "checkpoints", "--peer", p.Peer}})
		}
		last = p.Conn
	}
	return list
}
