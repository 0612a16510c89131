package federation

import (
	"context"
	"fmt"

	"github.com/spawnmesh/spawnmesh/federation/transport"
	"github.com/spawnmesh/spawnmesh/store"
)

// Blobs opens a connection for blobs with the hub of a connection, while that is active and linked: nobody dials a hub that is known
// to be away. It ends with the connection's right to anything. The error wraps transport.ErrUnavailable, ErrRefused or ErrPin.
func (b *Board) Blobs(ctx context.Context, conn string) (*transport.BlobConn, error) {
	x := b.Exchange(conn)
	if x == nil {
		return nil, fmt.Errorf("connecting for blobs: %w: connection %s is not served here", transport.ErrUnavailable, conn)
	}
	d, ok := x.way.(dialled)
	if !ok {
		return nil, fmt.Errorf("connecting for blobs: %s is no hub of this instance", x.peer.Load().Name)
	}
	changed := x.change()
	if state := x.peer.Load().State; state != store.Active || !d.State().Up {
		return nil, fmt.Errorf("connecting for blobs: %w: the connection is %s, and its link is not up or may not be used", transport.ErrUnavailable, state)
	}
	c, err := d.Link.Blobs(ctx)
	if err == nil {
		go x.endBlobs(c, changed)
	}
	return c, err
}

// Holders returns the hubs that can be reached now and let this instance work, by their connections, and how each names what it holds of the
// blobs that were brought to it; "" where it has not said so yet.
func (b *Board) Holders() map[string]string {
	list := map[string]string{}
	for _, x := range b.Exchanges() {
		if _, ok := x.way.(dialled); ok && x.peer.Load().State == store.Active && x.way.link() != 0 {
			list[x.id] = x.holds()
		}
	}
	return list
}

func (x *Exchange) holds() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.beat == nil || x.beatLink == fromTable {
		return ""
	}
	return x.beat.Body.Connection.Blobs
}

// endBlobs ends a connection for blobs when the connection is not active any more. It returns when c has ended.
func (x *Exchange) endBlobs(c *transport.BlobConn, changed <-chan struct{}) {
	for x.peer.Load().State == store.Active {
		select {
		case <-c.Gone():
			return
		case <-x.ended:
			c.Close()
			return
		case <-changed:
			changed = x.change()
		}
	}
	c.Close()
}

// serveBlobs answers what peers that are commanded ask about blobs.
func (b *Board) serveBlobs(ctx context.Context) error {
	return b.Server.Blobs(ctx, func(ctx context.Context, conn string, f transport.BlobFrame) transport.BlobFrame {
		r := b.roleFor(store.Commands)
		if r == nil || r.Blobs == nil {
			return f.Answer(transport.BlobUnavailable)
		}
		return r.Blobs(ctx, conn, f)
	})
}
