package spoke

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// What the record of an agent says that is ended because it overran its estimate, and how long it has from TERM to KILL.
const (
	overrunWhy   = "it ran much longer than estimated and told no progress"
	overrunGrace = 10 * time.Second
)

// overrun is what an attempt that has an estimate was told.
type overrun struct {
	warned atomic.Bool
	once   sync.Once
	over   chan struct{} // closed when it is to be ended
}

// overrunsAfter is how long after its start an attempt overruns; 0 = never.
func (s *Spoke) overrunsAfter(r *run) time.Duration {
	if r.estimate == 0 {
		return 0
	}
	return r.estimate + s.OverrunAfter
}

// estimated reports whether any live attempt has an estimate.
func (l *live) estimated() bool {
	for _, r := range l.list() {
		if r.estimate > 0 {
			return true
		}
	}
	return false
}

// lookForOverruns warns of attempts that take much longer than estimated, and ends those that tell no progress after it. It
// returns how long nothing more is due. The database remembers both, so a spoke that is started again goes on with it.
func (s *Spoke) lookForOverruns(ctx context.Context) time.Duration {
	if !s.live.estimated() {
		return s.board.QuietFor()
	}
	list, next, err := s.backlog.Overruns(ctx, s.owner(), &s.estimate, s.board.QuietFor())
	if err != nil {
		if ctx.Err() == nil {
			s.Log.ErrorContext(ctx, "looking for agents that run longer than estimated; it is tried again", "err", err)
		}
		return betweenSweeps
	}
	for _, o := range list {
		s.tellOverrun(ctx, o)
	}
	return next
}

// tellOverrun warns of an attempt that is live, once, and ends it where that is due.
func (s *Spoke) tellOverrun(ctx context.Context, o backlog.Overrun) {
	r := s.live.get(o.Task)
	if r == nil || r.fence.Attempt != o.Attempt {
		return
	}
	if r.overrun.warned.CompareAndSwap(false, true) {
		s.Log.WarnContext(ctx, "an agent runs much longer than estimated; it is ended where it tells no progress", "id", o.Task, "attempt", o.Attempt, "estimate", commands.Lasting(r.estimate))
		s.board.Beat()
	}
	if o.Over {
		r.overrun.once.Do(func() {
			s.Log.WarnContext(ctx, "an agent that ran much longer than estimated has told no progress, and is ended", "id", o.Task, "attempt", o.Attempt)
			close(r.overrun.over)
		})
	}
}

// endedByOverrun makes a failure of the end of an attempt that was ended as it overran its estimate: it may run again as its order
// says. One that ends well in the time that it was given has completed. The record tells of it, why, where the database has forgotten it.
func (s *Spoke) endedByOverrun(ctx context.Context, r *run, why string, e *backlog.End) {
	if e.Outcome != commands.AttemptKilled || r.estimate == 0 {
		return
	}
	over, err := s.backlog.Overran(ctx, r.fence)
	if err != nil {
		s.Log.ErrorContext(ctx, "looking whether an agent was ended as it overran its estimate; it counts as killed", "id", r.fence.Task, "err", err)
	}
	switch {
	case !over && !(r.forgot && why == overrunWhy):
	case endedWell(*e):
		e.Outcome = commands.Succeeded
	default:
		e.Outcome, e.Why = commands.AttemptFailed, commands.Overrun
	}
}
