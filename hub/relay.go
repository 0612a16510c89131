package hub

import (
	"context"
	"time"

	"github.com/spawnmesh/spawnmesh/federation/transport"
	"github.com/spawnmesh/spawnmesh/internal/crash"
	"github.com/spawnmesh/spawnmesh/store"
)

// relay carries the outbox to the message server. A row stays open until the
// spoke's database has confirmed it.
func (h *Hub) relay(ctx context.Context) error {
	for {
		sent, err := h.relayOnce(ctx)
		if err != nil && ctx.Err() == nil {
			h.Log.ErrorContext(ctx, "relaying the outbox", "err", err)
		}
		if sent > 0 {
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-h.outbox:
		case <-time.After(time.Second):
		}
	}
}

// relayOnce returns how many messages were taken by the message server.
func (h *Hub) relayOnce(ctx context.Context) (int, error) {
	var open []string
	for _, p := range h.peers.all() {
		if p.State == store.Active || p.State == store.Suspended {
			open = append(open, p.ID)
		}
	}
	out, err := h.cursor.Next(ctx, open, batch)
	if err == nil && len(out) == 0 {
		out, err = h.cursor.Again(ctx, h.linked(), batch)
	}
	if err != nil || len(out) == 0 {
		return 0, err
	}
	failed, err := h.publish(ctx, out)
	crash.Point("published commands")
	h.cursor.Back(failed)
	return len(out) - len(failed), err
}

// linked lists the connections whose peer is on line now.
func (h *Hub) linked() []string {
	var list []string
	for _, l := range h.fed.Peers() {
		if p := h.peers.byPeer(l.ID); p != nil {
			list = append(list, p.ID)
		}
	}
	return list
}

// publish sends out and returns what was not taken, with one of the reasons.
func (h *Hub) publish(ctx context.Context, out []store.Outgoing) (failed []store.Outgoing, err error) {
	list := make([]transport.Command, 0, len(out))
	for _, o := range out {
		list = append(list, transport.Command{Peer: string(h.peerOf(o.Conn)), Lane: o.Lane, Verb: o.Verb(), ID: o.ID, Body: o.Wire})
	}
	for i, e := range h.fed.Publish(ctx, list) {
		if e != nil {
			failed, err = append(failed, out[i]), e
		}
	}
	return failed, err
}
