package hub

import (
	"context"
	"time"

	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/internal/crash"
	"github.com/spawnmesh/spawnmesh/store"
)

// relay carries the outbox to the message server, as much as is due at a time.
// A row stays open until the spoke's database has confirmed it; a publish that
// failed is due again at once.
func (h *Hub) relay(ctx context.Context) error {
	for {
		sent, err := h.relayOnce(ctx)
		if err != nil && ctx.Err() == nil {
			h.Log.ErrorContext(ctx, "relaying the outbox", "err", err)
		}
		if err == nil && sent == batch {
			continue
		}
		wait := time.Second
		if next, err := h.DB.NextDue(ctx, wait); err == nil && sent >= 0 {
			wait = max(next, 5*time.Millisecond)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-h.outbox:
		case <-time.After(wait):
		}
	}
}

// relayOnce returns how many messages were sent, -1 when none could be.
func (h *Hub) relayOnce(ctx context.Context) (int, error) {
	out, err := h.DB.Due(ctx, h.linked(), batch)
	if err != nil || len(out) == 0 {
		return -1, err
	}
	failed, err := h.publish(ctx, out)
	crash.Point("published commands")
	if len(failed) > 0 {
		// The rows must be due again even when ctx ended the publish.
		back, done := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer done()
		if e := h.DB.Unsent(back, failed); e != nil && err == nil {
			err = e
		}
	}
	if len(failed) == len(out) {
		return -1, err
	}
	return len(out), err
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

// publish sends out and returns the ids that were not taken, with one of the
// reasons.
func (h *Hub) publish(ctx context.Context, out []store.Outgoing) (failed []string, err error) {
	list := make([]federation.Command, 0, len(out))
	for _, o := range out {
		list = append(list, federation.Command{Peer: string(h.peerOf(o.Conn)), Lane: o.Lane, Verb: o.Verb(), ID: o.ID, Body: o.Wire})
	}
	for i, e := range h.fed.Publish(ctx, list) {
		if e != nil {
			failed, err = append(failed, out[i].ID), e
		}
	}
	return failed, err
}
