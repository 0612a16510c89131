package transport

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"golang.org/x/sync/semaphore"

	"github.com/spawnmesh/spawnmesh/internal/wait"
)

const (
	blobConns   = 256           // connections for blobs at once
	blobQueued  = 8             // requests of one peer that wait or are handled; an honest one has four on their way
	blobRefused = 64            // refused as too many or wrong since a peer had none waiting; then its connection ends
	blobHandled = 16            // requests of all peers that are handled at once
	blobBytes   = 64 << 20      // of all requests that wait or are handled
	blobUnread  = 5 * MaxPiece  // of answers that a peer has not read; then its requests are dropped
	blobLasts   = 2 * time.Hour // a connection for blobs; who needs it longer dials again
)

// admitBlobs lets c into the account BLOB, to send two subjects and hear its own inbox, where its peer may link. It takes the
// place of an earlier connection of the peer, and is no link: nothing of the peer's state follows from it.
func (g *gate) admitBlobs(c server.ClientAuthentication, conn, nkey string) bool {
	older, ok := g.registerBlobs(c, conn, nkey)
	g.disconnect(older)
	return ok
}

func (g *gate) registerBlobs(c server.ClientAuthentication, conn, nkey string) (older []connection, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	acc, ready := g.account(accountBlob)
	if owner, known := g.keys[nkey]; !known || owner != conn || !ready || !g.opened {
		return nil, false
	}
	old, has := g.blobs[conn]
	switch {
	case has && old.client.GetID() == c.GetID():
		return nil, false // a second CONNECT on one connection
	case has:
		older = []connection{old}
	case !g.roomForBlobs():
		return nil, false
	}
	g.blobs[conn] = connection{client: c, since: time.Now()}
	user := blobUser(conn)
	c.RegisterUser(&server.User{
		Username: user,
		Account:  acc,
		Permissions: &server.Permissions{
			Publish:   &server.SubjectPermission{Allow: []string{blobSubject(conn, false), blobSubject(conn, true)}},
			Subscribe: &server.SubjectPermission{Allow: []string{inbox(user) + ".>"}},
		},
		ConnectionDeadline: time.Now().Add(blobLasts),
	})
	return older, true
}

// roomForBlobs tells whether one more peer may have a connection for blobs. The caller holds mu.
func (g *gate) roomForBlobs() bool {
	if len(g.blobs) >= blobConns {
		for conn, c := range g.blobs {
			if !g.alive(c.client) {
				delete(g.blobs, conn)
			}
		}
	}
	return len(g.blobs) < blobConns
}

// takeBlobs forgets the connection for blobs of a peer, and returns it. The caller holds mu.
func (g *gate) takeBlobs(conn string) []connection {
	c, has := g.blobs[conn]
	if !has {
		return nil
	}
	delete(g.blobs, conn)
	return []connection{c}
}

// endBlobs ends the connection for blobs of a peer, which may dial again.
func (g *gate) endBlobs(conn string) {
	g.mu.Lock()
	conns := g.takeBlobs(conn)
	g.mu.Unlock()
	g.disconnect(conns)
}

// blobsOf returns the connection for blobs of a peer that may have one.
func (g *gate) blobsOf(conn string) (*server.Server, connection, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c, ok := g.blobs[conn]
	return g.current, c, ok && g.current != nil
}

// Blobs hands what peers ask about blobs to handle and sends back what it returns, until ctx ends; it then returns nil.
// Requests of one peer are handled in their order, one after another, 16 of all peers at once. What is too much is answered with
// BlobBusy, and in the end with the end of the connection; nothing is answered while the peer leaves unread what it was.
func (h *Hub) Blobs(ctx context.Context, handle func(ctx context.Context, conn string, f BlobFrame) BlobFrame) error {
	h.prepare()
	d := &blobDesk{ctx: ctx, hub: h, handle: handle, places: semaphore.NewWeighted(blobHandled), queues: map[string][]blobRequest{}, refused: map[string]int{}}
	defer d.end()
	for {
		l, err := h.blobs.await(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if err := d.listen(l); ctx.Err() == nil {
			h.Log.DebugContext(ctx, "reading requests about blobs ended", "err", err)
		}
		if wait.For(ctx, backoffMin) != nil {
			return nil
		}
	}
}

// A blobDesk takes in requests about blobs.
type blobDesk struct {
	ctx      context.Context
	hub      *Hub
	handle   func(context.Context, string, BlobFrame) BlobFrame
	places   *semaphore.Weighted
	handling sync.WaitGroup

	mu      sync.Mutex
	ended   bool
	bytes   int                      // of all that is queued
	queues  map[string][]blobRequest // by peer, the oldest first: that one is being handled
	refused map[string]int           // by peer
}

type blobRequest struct {
	msg   *nats.Msg
	frame BlobFrame
}

func (d *blobDesk) listen(l *natsConn) error {
	sub, err := l.nc.Subscribe(blobSubjects, d.take)
	if err != nil {
		return fmt.Errorf("listening for requests about blobs: %w", err)
	}
	defer func() { _ = sub.Unsubscribe() }() // fails only when the connection is gone
	if err := sub.SetPendingLimits(4096, blobBytes); err != nil {
		return fmt.Errorf("listening for requests about blobs: %w", err)
	}
	if l.held(d.ctx) {
		return errors.New("the connection is gone")
	}
	return nil
}

// take queues a request. The server enforces the subject; the reply subject is whatever the peer says, and must be in its inbox.
func (d *blobDesk) take(m *nats.Msg) {
	conn, put, ok := parseBlobSubject(m.Subject)
	if !ok || !strings.HasPrefix(m.Reply, inbox(blobUser(conn))+".") {
		return
	}
	if _, _, has := d.hub.gate.blobsOf(conn); !has {
		return // cut meanwhile
	}
	f, err := parseBlobRequest(m.Data, put)
	switch {
	case err != nil:
		d.refuse(conn, m, BlobFrame{Code: BlobInvalid})
	case !d.queue(conn, blobRequest{m, f}):
		d.refuse(conn, m, f.Answer(BlobBusy))
	}
}

// refuse answers a request that is not handled. Who goes on with such requests loses its connection.
func (d *blobDesk) refuse(conn string, m *nats.Msg, f BlobFrame) {
	d.mu.Lock()
	d.refused[conn]++
	over := d.refused[conn] > blobRefused
	if over {
		delete(d.refused, conn)
	}
	d.mu.Unlock()
	if over {
		d.hub.Log.WarnContext(d.ctx, "a peer asked for too much about blobs at once, and its connection for them was ended", "conn", conn)
		d.hub.gate.endBlobs(conn)
		return
	}
	_ = m.Respond(f.encode()) // fails with the connection; the peer asks again
}

// queue reports whether there is room for a request.
func (d *blobDesk) queue(conn string, r blobRequest) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	q := d.queues[conn]
	if d.ended || len(q) >= blobQueued || d.bytes+len(r.msg.Data) > blobBytes {
		return false
	}
	d.bytes += len(r.msg.Data)
	d.queues[conn] = append(q, r)
	if len(q) == 0 {
		d.handling.Go(func() { d.serve(conn) })
	}
	return true
}

// end waits for those that are being handled.
func (d *blobDesk) end() {
	d.mu.Lock()
	d.ended = true
	d.mu.Unlock()
	d.handling.Wait()
}

// serve handles what one peer asks until nothing of it waits.
func (d *blobDesk) serve(conn string) {
	for more := true; more; more = d.next(conn) {
		if d.places.Acquire(d.ctx, 1) != nil {
			return
		}
		d.mu.Lock()
		r := d.queues[conn][0]
		d.mu.Unlock()
		if d.reads(conn) {
			_ = r.msg.Respond(d.handle(d.ctx, conn, r.frame).encode()) // fails with the connection; the peer asks again
		}
		d.places.Release(1)
	}
}

// next takes away the request that was handled and reports whether another one waits.
func (d *blobDesk) next(conn string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	q := d.queues[conn]
	d.bytes -= len(q[0].msg.Data)
	q[0] = blobRequest{}
	if d.queues[conn] = q[1:]; len(q) == 1 {
		delete(d.queues, conn)
		delete(d.refused, conn)
		return false
	}
	return true
}

// reads reports whether a peer may still have blobs, and reads what it is answered.
func (d *blobDesk) reads(conn string) bool {
	srv, c, ok := d.hub.gate.blobsOf(conn)
	if !ok {
		return false
	}
	z, err := srv.Connz(&server.ConnzOptions{CID: c.client.GetID(), Account: accountBlob})
	return err == nil && len(z.Conns) == 1 && z.Conns[0].Pending <= blobUnread
}
