package transport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"golang.org/x/sync/errgroup"
)

// resetTimeout bounds how long a login waits for a server that is busy.
const resetTimeout = time.Second

// A Peer is an instance that may link to this hub.
type Peer struct {
	ID   string // id of the connection: lower-case letters, digits and dashes, at most 63
	NKey string // public key of its link, see NKey; not the key it signs with
	Name string // for the log
}

// A PeerLink is the present connection of a peer.
type PeerLink struct {
	ID      string
	Since   time.Time
	Remote  string        // host:port it dials from
	RTT     time.Duration // of the last ping; 0 before the first
	Bytes   int64         // received and sent on this connection
	Waiting int           // bytes on their way to the peer
}

// Admit lets a peer in from now on and gives it its queues. It may be called
// again, also to replace the peer's key, and before Start: a hub that starts
// again is told of its peers first. The key must be one that nobody else can
// sign for; a degenerate key is the caller's to refuse.
func (h *Hub) Admit(ctx context.Context, p Peer) error {
	h.prepare()
	if err := checkID("peer", p.ID); err != nil {
		return fmt.Errorf("admitting a peer: %w", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	// The queues are there before the peer is.
	if srv := h.gate.server(); srv != nil {
		if err := h.provision(ctx, srv, p.ID); err != nil {
			return fmt.Errorf("admitting %s: %w", p.ID, err)
		}
	}
	return h.gate.admit(p)
}

// Cut refuses the peer from now on. When it returns, the peer's connections
// are closed and nothing it sends arrives any more. Its queues stay, and
// commands may still be published; Admit lets it back in.
func (h *Hub) Cut(id string) {
	h.prepare()
	h.gate.cut(id)
}

// Forget cuts the peer and drops its queues with the commands and reports that
// wait in them. For ten minutes after it, a command with the id of a dropped one is
// taken for a repetition and dropped too.
func (h *Hub) Forget(ctx context.Context, id string) error {
	h.Cut(id)
	if err := checkID("peer", id); err != nil {
		return fmt.Errorf("forgetting a peer: %w", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.main.get()
	if l == nil {
		return fmt.Errorf("forgetting %s: %w", id, ErrUnavailable)
	}
	if err := dropQueues(ctx, l.js, id); err != nil {
		return fmt.Errorf("forgetting %s: %w", id, err)
	}
	h.gauges.Delete(id)
	return nil
}

// Peers lists the peers that are connected, by id.
func (h *Hub) Peers() []PeerLink {
	h.prepare()
	srv, conns := h.gate.connections()
	var links []PeerLink
	for id, c := range conns {
		z, err := srv.Connz(&server.ConnzOptions{CID: c.client.GetID()})
		if err != nil || len(z.Conns) == 0 {
			continue // it has just ended
		}
		info := z.Conns[0]
		rtt, _ := time.ParseDuration(info.RTT) // empty before the first ping
		links = append(links, PeerLink{
			ID:      id,
			Since:   c.since,
			Remote:  fmt.Sprintf("%s:%d", info.IP, info.Port),
			RTT:     rtt,
			Bytes:   info.InBytes + info.OutBytes,
			Waiting: info.Pending,
		})
	}
	slices.SortFunc(links, func(a, b PeerLink) int { return cmp.Compare(a.ID, b.ID) })
	return links
}

// provision gives peers their accounts on srv and their queues. An account
// cannot be taken away again; it is empty and open to nobody without an admitted
// key. The caller holds mu.
func (h *Hub) provision(ctx context.Context, srv *server.Server, conns ...string) error {
	hub, err := srv.LookupAccount(accountHub)
	if err != nil {
		return fmt.Errorf("finding account %s: %w", accountHub, err)
	}
	l := h.main.get()
	if l == nil {
		return ErrUnavailable
	}
	quota, share := int64(cmp.Or(h.ReportQuota, 20_000)), cmp.Or(h.ReportBytes, 8<<20)
	queues, ctx := errgroup.WithContext(ctx)
	queues.SetLimit(8) // requests on their way to the server
	for _, conn := range conns {
		if err := h.addExports(srv, hub, conn); err != nil {
			return errors.Join(err, queues.Wait())
		}
		queues.Go(func() error { return ensureQueues(ctx, l.js, conn, reportStreams(conn, quota, share)) })
	}
	return queues.Wait()
}

// addExports gives a peer an account. The caller holds mu.
func (h *Hub) addExports(srv *server.Server, hub *server.Account, conn string) error {
	acc, _ := srv.LookupOrRegisterAccount(accountName(conn))
	// The server refuses to open a export twice, so an attempt goes on where an
	// earlier one stopped.
	for _, d := range exports(conn)[h.opened[conn]:] {
		if err := acc.AddServiceImport(hub, d.outside, d.inside); err != nil {
			return fmt.Errorf("opening %s to %s: %w", d.outside, conn, err)
		}
		h.opened[conn]++
	}
	return nil
}

// handBack makes what the peer was handed and did not acknowledge available
// again at once: a spoke that crashed with commands in its hands gets them
// when it is back, not when the acknowledgements have timed out. Whatever it
// acknowledged on an earlier connection and is handed once more, it knows.
//
// It is called from the peer's connection before the peer can ask for
// anything, so what the peer asks for then is not handed on twice.
func (h *Hub) handBack(conn string) {
	l := h.main.get()
	if l == nil {
		return
	}
	for _, queue := range commandQueues {
		if _, err := l.nc.Request(resetSubject(conn, queue), nil, resetTimeout); err != nil {
			h.Log.Debug("commands in transit are handed on again later", "conn", conn, "err", err)
			return
		}
	}
}
