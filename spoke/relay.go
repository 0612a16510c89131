package spoke

import (
	"context"
	"time"

	"github.com/spawnmesh/spawnmesh/federation/transport"
	"github.com/spawnmesh/spawnmesh/internal/crash"
	"github.com/spawnmesh/spawnmesh/store"
)

// relay carries the outbox over the link while it is up. A row stays open until
// the hub's database has confirmed it.
func (s *Spoke) relay(ctx context.Context) error {
	for {
		sent := 0
		if s.link.State().Up {
			var err error
			if sent, err = s.relayOnce(ctx); err != nil && ctx.Err() == nil {
				s.Log.WarnContext(ctx, "relaying the outbox", "err", err)
			}
		}
		if sent > 0 {
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.outbox:
		case <-time.After(time.Second):
		}
	}
}

// relayOnce returns how many messages the hub's message server has taken.
func (s *Spoke) relayOnce(ctx context.Context) (int, error) {
	conn, _ := s.hub.get()
	conns := []string{conn.ID}
	out, err := s.cursor.Next(ctx, conns, batch)
	if err == nil && len(out) == 0 {
		out, err = s.cursor.Again(ctx, conns, batch)
	}
	if err != nil || len(out) == 0 {
		return 0, err
	}
	failed, err := s.publish(ctx, out)
	crash.Point("published reports")
	s.cursor.Back(failed)
	return len(out) - len(failed), err
}

// publish sends out and returns what was not taken, with one of the reasons.
func (s *Spoke) publish(ctx context.Context, out []store.Outgoing) (failed []store.Outgoing, err error) {
	reports := make([]transport.Report, len(out))
	for i, o := range out {
		reports[i] = transport.Report{Kind: o.Lane, ID: o.ID, Body: o.Wire}
	}
	for i, e := range s.link.Publish(ctx, reports) {
		if e != nil {
			failed, err = append(failed, out[i]), e
		}
	}
	return failed, err
}
