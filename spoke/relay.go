package spoke

import (
	"context"
	"time"

	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/internal/crash"
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
		if sent == batch {
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
	out, err := s.DB.Due(ctx, []string{conn.ID}, batch)
	if err != nil || len(out) == 0 {
		return 0, err
	}
	reports := make([]federation.Report, len(out))
	for i, o := range out {
		reports[i] = federation.Report{Kind: o.Lane, ID: o.ID, Body: o.Wire}
	}
	var failed []string
	errs := s.link.Publish(ctx, reports)
	crash.Point("published reports")
	for i, e := range errs {
		if e != nil {
			failed, err = append(failed, out[i].ID), e
		}
	}
	if len(failed) > 0 {
		// The rows must be due again even when ctx ended the publish.
		back, done := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer done()
		if e := s.DB.Unsent(back, failed); e != nil {
			return 0, e
		}
	}
	return len(out) - len(failed), err
}
