package transport

import (
	"context"
	"time"
)

// Remote is the host:port that a peer dials from, "" while it is not connected.
func (h *Hub) Remote(peer string) string {
	c, ok := h.gate.connection(peer)
	if !ok || c.client.RemoteAddress() == nil {
		return ""
	}
	return c.client.RemoteAddress().String()
}

// Waiting reports whether commands of a lane wait for a peer, or were handed to
// it and not acknowledged.
func (h *Hub) Waiting(ctx context.Context, peer, lane string) bool {
	l := h.main.get()
	if l == nil {
		return false
	}
	c, err := l.js.Consumer(ctx, streamCommands, consumerName(peer, lane))
	if err != nil {
		return false
	}
	info := c.CachedInfo()
	return info.NumPending > 0 || info.NumAckPending > 0
}

// connection returns the live connection of a peer.
func (g *gate) connection(peer string) (connection, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if a := g.peers[peer]; a != nil {
		for _, c := range a.conns {
			if g.alive(c.client) {
				return c, true
			}
		}
	}
	return connection{}, false
}

// Linked reports whether a peer is connected, and since when.
func (h *Hub) Linked(peer string) (time.Time, bool) {
	c, ok := h.gate.connection(peer)
	return c.since, ok
}
