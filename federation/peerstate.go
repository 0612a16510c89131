package federation

import (
	"context"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// peerStatePause is the least time between two states of a peer that are noted: one that
// changes its state with each heartbeat does not fill log and audit.
const peerStatePause = 3 * time.Second

// notePeerState logs and audits, once, that the peer has changed the state of the
// connection on its side. What is not noted now is with the next heartbeat.
func (x *Exchange) notePeerState(ctx context.Context, p *Peer, kid signing.KeyID, v commands.ConnectionView) error {
	says := store.PeerState{State: store.ConnState(v.State), By: v.By, Reason: v.Reason}
	if !x.newPeerState(says, time.Now()) {
		return nil
	}
	changed, err := x.board.DB.NotePeerState(ctx, p.Connection, kid, says)
	if err != nil {
		return err
	}
	x.mu.Lock()
	x.peerState, x.peerStateAt = says, time.Now()
	x.mu.Unlock()
	if changed {
		x.log.InfoContext(ctx, "the peer has changed the connection on its side", "state", says.State, "by", says.By, "reason", says.Reason)
	}
	return nil
}

// newPeerState reports whether what the peer says is to be noted now.
func (x *Exchange) newPeerState(says store.PeerState, now time.Time) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.peerState != says && now.Sub(x.peerStateAt) >= peerStatePause
}
