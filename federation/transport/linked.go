package transport

import (
	"time"
)

// Remote is the host:port that a peer dials from, "" while it is not connected.
func (h *Hub) Remote(conn string) string {
	c, ok := h.gate.connection(conn)
	if !ok || c.client.RemoteAddress() == nil {
		return ""
	}
	return c.client.RemoteAddress().String()
}

// connection returns the live connection of a peer.
func (g *gate) connection(conn string) (connection, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if a := g.peers[conn]; a != nil {
		for _, c := range a.conns {
			if g.alive(c.client) {
				return c, true
			}
		}
	}
	return connection{}, false
}

// Linked reports whether a peer is connected, and since when.
func (h *Hub) Linked(conn string) (time.Time, bool) {
	c, ok := h.gate.connection(conn)
	return c.since, ok
}
