package spoke

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// readiness is whether a claim may find something, as far as this process knows.
type readiness struct {
	counted atomic.Int64 // tasks that stood ready at the last sweep
	more    atomic.Bool  // false only after a claim that got less than it asked for

	told  atomic.Pointer[backlog.ForHubs] // what hubs are told; nil = nothing is known yet
	asked time.Time                       // when that was read last; of the goroutine that sweeps
}

// count notes what a sweep has counted, and reports whether tasks stand ready and none did before.
func (r *readiness) count(n int) (fresh bool) {
	return r.counted.Swap(int64(n)) == 0 && n > 0
}

// any reports whether tasks may stand ready.
func (r *readiness) any() bool { return r.more.Load() || r.counted.Load() > 0 }

// forHubs is what hubs are told; nothing where it is not known yet.
func (r *readiness) forHubs() backlog.ForHubs {
	if f := r.told.Load(); f != nil {
		return *f
	}
	return backlog.ForHubs{}
}

// tellEvery is how often it is read what hubs are told.
const tellEvery = time.Second

// lookForHubs reads what hubs are told, and tells them early where more or less is kept from them. It returns how soon to do so again.
func (s *Spoke) lookForHubs(ctx context.Context) time.Duration {
	if since := time.Since(s.ready.asked); since < tellEvery {
		return tellEvery - since
	}
	s.ready.asked = time.Now()
	f, err := s.backlog.ForHubs(ctx)
	if err != nil {
		if ctx.Err() == nil {
			s.Log.DebugContext(ctx, "looking at what hubs are told; it is tried again", "err", err)
		}
		return tellEvery
	}
	was := s.ready.forHubs()
	s.ready.told.Store(&f)
	if (was.Held == nil) != (f.Held == nil) || (was.Limited == 0) != (f.Limited == 0) {
		s.board.Beat()
	}
	return betweenSweeps
}
