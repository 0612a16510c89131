package spoke

import (
	"context"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// An order may be large, and after a restore thousands of attempts may wait for what their hub recalls. So an attempt that is taken over has an
// outline of its order. The whole is read where its agent goes on, and for the time that its end takes.

// orderOf returns the whole order of an attempt. What fails is tried again, until the attempt is left.
func (s *Spoke) orderOf(ctx context.Context, r *run) (commands.Spawn, error) {
	if !r.outline {
		return r.spec, nil
	}
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		order, err := s.backlog.Order(ctx, r.fence.Task)
		if err == nil || ctx.Err() != nil {
			return order, err
		}
		s.Log.ErrorContext(ctx, "reading the order of an attempt; it will be tried again", "id", r.fence.Task, "err", err)
		if !r.rest(ctx, pause) {
			return order, err
		}
	}
}

// metLimit reports whether the last output of an attempt that failed says that it has met a limit of its account. A fault of this host that
// keeps it from being said has a while to pass.
func (s *Spoke) metLimit(ctx context.Context, r *run, e backlog.End) (bool, error) {
	order, err := s.orderOf(ctx, r)
	if err != nil {
		return false, err
	}
	reason := ""
	if e.Word != nil {
		reason = e.Word.Text
	}
	for began, pause := time.Now(), 100*time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		met, fault := s.Policy.Now().MetLimit(order.Argv, reason, e.Stdout.Tail, e.Stderr.Tail)
		if fault == nil {
			return met, nil
		}
		if time.Since(began) > s.left.patience() {
			s.Log.WarnContext(ctx, "by a fault of this host it cannot be told whether an agent has met a limit of its account; it counts as failed", "id", r.fence.Task, "err", withoutPath(fault))
			return false, nil
		}
		if !r.rest(ctx, pause) {
			return false, fault
		}
	}
}
