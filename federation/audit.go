package federation

import (
	"context"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/audittree"
	"github.com/spawnmesh/spawnmesh/store"
)

// Each side keeps the newest checkpoint of the other's audit. Heartbeats say which that is, and bring the newest one to who
// has another, with the proof that it goes on from that: an audit that was rewritten, and one that was put back unsaid, does not.

// A witness is what this side knows of the audit of a peer. The exchange's mu guards it.
type witness struct {
	read      bool // what is kept was read
	era, kept int64
	seen      string // the note that was looked at last
	proofFrom int64  // with the proof that came with it
	refused   string // why one of this era was
}

// ShowCheckpoint is what peers are shown of the audit of this instance from now on.
func (b *Board) ShowCheckpoint(c store.Checkpoint) {
	if c.Note != "" {
		b.checkpoint.Store(&c)
	}
}

// sayAudit adds to a heartbeat what this side has of the peer's audit, and what the peer lacks of its own. A side that
// answers a heartbeat says nothing of it to one that did not.
func (x *Exchange) sayAudit(ctx context.Context, v *commands.ConnectionView) {
	w, err := x.witnessed(ctx)
	x.mu.Lock()
	var theirs *commands.AuditHead
	if x.beat != nil {
		theirs = x.beat.Body.Connection.Audit
	}
	x.mu.Unlock()
	if err != nil || theirs == nil && x.peer.Load().Authority == store.Commands {
		return
	}
	v.Audit = &commands.AuditHead{Era: w.era, Kept: w.kept, Refused: commands.CleanReason(w.refused)}
	mine := x.board.checkpoint.Load()
	if mine == nil || theirs == nil || theirs.Era == mine.Era && theirs.Kept == mine.Size {
		return
	}
	v.Audit.Checkpoint = mine.Note
	if theirs.Era != mine.Era || theirs.Kept == 0 || theirs.Kept > mine.Size {
		return
	}
	proof, err := x.board.DB.ProveAudit(ctx, theirs.Kept, mine.Size)
	if err != nil {
		v.Audit.Checkpoint = ""
		return
	}
	v.Audit.From = theirs.Kept
	for _, h := range proof {
		v.Audit.Proof = append(v.Audit.Proof, h.String())
	}
}

// witnessed is what is kept of the peer's audit.
func (x *Exchange) witnessed(ctx context.Context) (witness, error) {
	x.mu.Lock()
	w := x.witness
	x.mu.Unlock()
	if w.read {
		return w, nil
	}
	list, err := x.board.DB.PeerCheckpoints(ctx, x.id)
	if err != nil {
		return w, err
	}
	w.read = true
	if len(list) > 0 {
		w.era, w.kept, w.refused = list[0].Era, list[0].Size, list[0].Why
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.witness = w
	return w, nil
}

// witnessAudit keeps the checkpoint in a heartbeat, or says that it does not go on from what is kept.
func (x *Exchange) witnessAudit(ctx context.Context, p *Peer, h *commands.AuditHead) error {
	if h != nil && !x.auditRefused.Swap(h.Refused != "") && h.Refused != "" {
		x.log.ErrorContext(ctx, "the peer refuses the audit of this instance: it is not what it was", "code", commands.AuditBroken, "why", h.Refused)
	}
	w, err := x.witnessed(ctx)
	if err != nil || h == nil || h.Checkpoint == "" || w.seen == h.Checkpoint && w.proofFrom == h.From {
		return err
	}
	c, proof, err := shownCheckpoint(p, h)
	if err == nil && c.Era == w.era && c.Size > w.kept && w.kept != h.From {
		return nil // the proof is from another one: the next heartbeat has that from this one
	}
	if err == nil {
		err = x.keepCheckpoint(ctx, p, c, proof, &w)
	} else if x.refusals.room(time.Now()) > 0 {
		x.log.WarnContext(ctx, "a checkpoint of the peer's audit cannot be read", "err", err)
	}
	if err != nil && commands.CodeOf(err) != commands.AuditBroken {
		return err
	}
	w.seen, w.proofFrom = h.Checkpoint, h.From
	x.mu.Lock()
	defer x.mu.Unlock()
	x.witness = w
	return nil
}

func (x *Exchange) keepCheckpoint(ctx context.Context, p *Peer, c store.Checkpoint, proof []audittree.Hash, w *witness) error {
	news, err := x.board.DB.KeepCheckpoint(ctx, p.Connection, c, proof)
	switch {
	case err == nil:
		if w.kept > 0 && c.Era > w.era {
			x.log.WarnContext(ctx, "the audit of the peer begins anew: its database was restored from a backup", "rows", c.Size, "kept", w.kept)
		}
		if c.Era > w.era {
			w.refused = ""
		}
		w.era, w.kept = c.Era, c.Size
	case news:
		w.refused = err.Error()
		x.log.ErrorContext(ctx, "the audit of the peer is not what it was; what it shows is kept as evidence", "code", commands.AuditBroken, "why", err)
	}
	return err
}

// shownCheckpoint opens what a peer shows of its audit.
func shownCheckpoint(p *Peer, h *commands.AuditHead) (c store.Checkpoint, proof []audittree.Hash, err error) {
	c.Note = h.Checkpoint
	if c.Checkpoint, err = audittree.Open(h.Checkpoint, p.Verifier.Keys[p.Verifier.Identity].Public); err != nil {
		return c, nil, commands.Refuse(commands.AuditBroken, "%v", err)
	}
	for _, text := range h.Proof {
		hash, err := audittree.ParseHash(text)
		if err != nil {
			return c, nil, commands.Refuse(commands.AuditBroken, "the proof of a checkpoint: %v", err)
		}
		proof = append(proof, hash)
	}
	return c, proof, nil
}
