package transport

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/semaphore"

	"github.com/spawnmesh/spawnmesh/internal/wait"
)

const (
	maxBeat   = 96 << 10 // bytes of one heartbeat with its subjects
	beatsMost = 64       // heartbeats handled at once, one per peer
)

// MaxBeat is how many bytes a heartbeat has at most.
const MaxBeat = maxBeat - 256

// Beat sends a heartbeat of at most 96 KiB and returns the hub's answer. It is
// kept nowhere: a newer one replaces it, and no answer means that it may have
// been lost. Without a deadline in ctx it waits five seconds at most.
func (k *Link) Beat(ctx context.Context, body []byte) (answer []byte, err error) {
	if len(body) > MaxBeat {
		return nil, fmt.Errorf("a heartbeat of %d bytes is too long", len(body))
	}
	l := k.conns.get()
	if l == nil {
		return nil, k.down()
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	m, err := l.nc.RequestWithContext(ctx, beatSubject(k.ID), body)
	if err != nil {
		return nil, fmt.Errorf("%w: no answer to a heartbeat: %w", ErrUnavailable, err)
	}
	return m.Data, nil
}

// Presence hands the heartbeats of all peers to handle and sends back what it
// returns, unless that is empty, until ctx ends; it then returns nil. Up to 64
// are handled at once, one per peer: while that is handled only the newest of
// its peer waits, and the others are dropped. Heartbeats share neither queue nor
// connection with reports.
func (h *Hub) Presence(ctx context.Context, handle func(ctx context.Context, conn string, body []byte) (answer []byte)) error {
	h.prepare()
	return h.serve(ctx, &h.beats, beatSubject("*"), &presence{
		sender: func(m *nats.Msg) (string, bool) { return parseBeat(m.Subject) },
		handle: handle,
	})
}

// serve hands on what comes on one of the hub's connections under subject, until ctx ends.
func (h *Hub) serve(ctx context.Context, conns *latest[natsConn], subject string, p *presence) error {
	p.ctx, p.places, p.newest, p.busy = ctx, semaphore.NewWeighted(beatsMost), map[string]*nats.Msg{}, map[string]bool{}
	defer p.end()
	for {
		l, err := conns.await(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if err := p.listen(l, subject); ctx.Err() == nil {
			h.Log.DebugContext(ctx, "reading "+subject+" ended", "err", err)
		}
		if wait.For(ctx, backoffMin) != nil {
			return nil
		}
	}
}

// presence hands on requests of which only a peer's newest counts.
type presence struct {
	ctx      context.Context
	handle   func(context.Context, string, []byte) []byte
	sender   func(m *nats.Msg) (conn string, ok bool)
	places   *semaphore.Weighted
	handling sync.WaitGroup

	mu     sync.Mutex
	ended  bool
	newest map[string]*nats.Msg // not handled yet, by peer
	busy   map[string]bool      // peers with a goroutine that handles their newest
}

// listen takes in what one connection brings until it is gone or the context ends.
func (p *presence) listen(l *natsConn, subject string) error {
	sub, err := l.nc.Subscribe(subject, p.take)
	if err != nil {
		return fmt.Errorf("listening for %s: %w", subject, err)
	}
	defer func() { _ = sub.Unsubscribe() }() // fails only when the connection is gone
	if l.held(p.ctx) {
		return errors.New("the connection is gone")
	}
	return nil
}

func (p *presence) take(m *nats.Msg) {
	conn, ok := p.sender(m)
	if !ok || m.Size() > maxBeat {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return
	}
	p.newest[conn] = m
	if !p.busy[conn] {
		p.busy[conn] = true
		p.handling.Go(func() { p.serve(conn) })
	}
}

// end waits for those that are being handled.
func (p *presence) end() {
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
	p.handling.Wait()
}

// serve handles what one peer sent, the newest first and no other.
func (p *presence) serve(conn string) {
	for p.places.Acquire(p.ctx, 1) == nil {
		p.mu.Lock()
		m := p.newest[conn]
		delete(p.newest, conn)
		if m == nil {
			delete(p.busy, conn)
		}
		p.mu.Unlock()
		if m == nil {
			p.places.Release(1)
			return
		}
		if answer := p.handle(p.ctx, conn, m.Data); len(answer) > 0 {
			_ = m.Respond(answer) // fails with the connection; the peer asks again
		}
		p.places.Release(1)
	}
}
