package federation

import (
	"context"
	"fmt"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// A connection over which we obey has a lease: it ends when nothing was heard of
// the peer for a while, and begins anew with the next heartbeat. What runs goes
// on; nothing new is started for a peer that may have revoked us meanwhile.

// byLease is who suspends a connection whose lease ended, and resumes it.
const byLease = "lease"

// endLeases ends leases whose time has come.
func (b *Board) endLeases(ctx context.Context) {
	for _, x := range b.Exchanges() {
		p := x.peer.Load()
		if p.Authority != store.Obeys || p.State != store.Active || time.Since(x.lastHeard()) < x.role.Lease() {
			continue
		}
		reason := fmt.Sprintf("%s was not heard for %s; nothing new is started until it is", p.Name, x.role.Lease())
		if err := b.changeBySelf(ctx, p, store.Suspended, reason, byLease); err != nil && ctx.Err() == nil {
			b.Log.ErrorContext(ctx, "ending the lease of a connection", "connection", p.Name, "err", err)
		}
	}
}

// lastHeard is when the peer was last heard, or the connection was made.
func (x *Exchange) lastHeard() time.Time {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.beat != nil {
		return x.beat.At
	}
	return x.peer.Load().CreatedAt
}

// resumeLease begins the lease of a connection anew.
func (b *Board) resumeLease(ctx context.Context, p *Peer) error {
	if p.State != store.Suspended || p.By != byLease {
		return nil
	}
	c, err := b.DB.ResumeConnection(ctx, p.ID, byLease, commands.CleanReason(p.Name+" was heard again"), byLease)
	if err != nil {
		return err
	}
	if c.State == store.Active {
		b.sayChanged(ctx, p, c.State, c.Reason)
	}
	b.changed()
	return nil
}
