package hub

import (
	"context"
	"crypto/tls"
	"fmt"
	"sync"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation/transport"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

type tlsCertificate = tls.Certificate

// A peer is a connection with what it takes to open its messages.
type peer struct {
	store.Connection
	verifier signing.Verifier
}

// peers is the cache of the connections table. The table decides; the cache
// spares a query per message.
type peers struct {
	mu   sync.RWMutex // guards list
	list []*peer
}

func (p *peers) set(list []*peer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list = list
}

func (p *peers) all() []*peer {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.list
}

// byPeer returns the living connection with instance id, or nil.
func (p *peers) byPeer(id string) *peer {
	for _, c := range p.all() {
		if string(c.Peer) == id && c.State != store.Revoked && c.State != store.Rejected {
			return c
		}
	}
	return nil
}

// farewell is the audit row about a message of an instance that has no living
// connection: what it sent before its connection ended, as a rule.
func (p *peers) farewell(id string) *store.AuditRow {
	row := &store.AuditRow{Actor: id, Action: "report.refused", Code: string(signing.ConnUnknown), Why: "no such connection"}
	for _, c := range p.all() {
		if string(c.Peer) == id {
			row.Code, row.Conn = string(signing.ConnState), c.ID
			row.Why = fmt.Sprintf("the connection with %s is %s", c.Name, c.State)
		}
	}
	return row
}

// find returns the connection that a person means by its name, its id or a
// prefix of at least six characters of it. A living one wins over ended ones.
func (p *peers) find(text string) (*peer, error) {
	var found []*peer
	for _, c := range p.all() {
		living := c.State != store.Revoked && c.State != store.Rejected
		if c.ID == text || c.Name == text && living {
			return c, nil
		}
		if c.Name == text || len(text) >= 6 && len(text) < len(c.ID) && c.ID[:len(text)] == text {
			found = append(found, c)
		}
	}
	switch len(found) {
	case 0:
		return nil, commands.Refuse(commands.NotFound, "no connection %q", text).Hinting("see: spawnmesh connections list")
	case 1:
		return found[0], nil
	}
	return nil, commands.Refuse(commands.Ambiguous, "%q fits %d connections", text, len(found)).Hinting("use more of the id; see: spawnmesh connections list")
}

// reload reads the connections again.
func (h *Hub) reload(ctx context.Context) error {
	conns, err := h.DB.Connections(ctx)
	if err != nil {
		return err
	}
	list := make([]*peer, 0, len(conns))
	for _, c := range conns {
		if c.Authority != store.Commands {
			continue
		}
		v, err := h.DB.Verifier(ctx, c)
		if err != nil {
			return err
		}
		list = append(list, &peer{c, v})
	}
	h.peers.set(list)
	ring(h.reader)
	return nil
}

// setState changes a connection's state and makes it bite: the commit comes
// first, from then on no transaction accepts what the state forbids; then the
// live link is cut. A crash between the two cuts the link by itself.
func (h *Hub) setState(ctx context.Context, text string, to store.ConnState, reason, actor string) (store.Connection, error) {
	p, err := h.peers.find(text)
	if err != nil {
		return store.Connection{}, err
	}
	c, err := h.DB.SetConnectionState(ctx, p.ID, to, reason, actor)
	if err != nil {
		return c, err
	}
	// The decision stands: what follows must happen even if the caller leaves.
	ctx = context.WithoutCancel(ctx)
	if err := h.enforce(ctx, c); err != nil {
		return c, err
	}
	return c, h.reload(ctx)
}

func (h *Hub) enforce(ctx context.Context, c store.Connection) error {
	switch c.State {
	case store.Active:
		if err := h.fed.Admit(ctx, transport.Peer{ID: string(c.Peer), NKey: c.LinkKey}); err != nil {
			return fmt.Errorf("admitting %s: %w", c.Name, err)
		}
	case store.Revoked, store.Rejected:
		if err := h.fed.Forget(ctx, string(c.Peer)); err != nil {
			return fmt.Errorf("dropping the queues of %s: %w", c.Name, err)
		}
	default:
		h.fed.Cut(string(c.Peer))
	}
	h.Log.InfoContext(ctx, "connection changed", "name", c.Name, "state", c.State)
	return nil
}
