package spoke

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// collectWithin bounds all that is done to collect what an attempt has left: an agent can leave a file without an end, or objects that unfold
// to any size, and the end of its attempt waits for it.
const collectWithin = 30 * time.Minute

// Why a collection ends before it is done. The tree stays; but where this process stops, its end is told without what is left.
var (
	errLate   = fmt.Errorf("collecting it took longer than %v", collectWithin)
	errKilled = errors.New("the agent was killed while it was collected")
	errLost   = errors.New("the lease was lost while it was collected")
	errLeft   = errors.New("this process stops") // and the next one does it
)

// gaveUp is why a collection with this context has ended for good, nil where it has not.
func gaveUp(ctx context.Context) error {
	if cause := context.Cause(ctx); errors.Is(cause, errLate) || errors.Is(cause, errKilled) || errors.Is(cause, errLost) {
		return cause
	}
	return nil
}

// A killFinder says which kill has taken the lease of a task, as [backlog.Backlog.PendingKill] does.
type killFinder func(ctx context.Context, task string) (backlog.KillRun, bool, error)

// collecting is a context for the collection of what an attempt has left. It ends when its time is over, with a kill that comes from now on,
// when the lease is lost without one, and when this process stops; its cause says which. A kill that came before is what ended the agent: what
// that has left is collected.
func (r *run) collecting(ctx context.Context, within time.Duration, find killFinder) (context.Context, func()) {
	held, end := context.WithCancelCause(ctx)
	known := int64(math.MaxInt64) // where it cannot be told what ended the agent no kill ends the collection
	if k, killed, err := find(ctx, r.fence.Task); err == nil {
		known = r.fence.Epoch
		if killed {
			known = k.Fence.Epoch
		}
	}
	timed, stop := context.WithTimeoutCause(held, within, errLate)
	go func() {
		for lost := r.lost; ; {
			select {
			case <-timed.Done():
			case <-r.leave:
				end(errLeft)
			case k := <-r.kills:
				if k.Fence.Epoch <= known {
					continue // it is said again
				}
				end(errKilled)
			case <-lost:
				lost = nil // a kill takes the lease, too
				if k, killed, err := find(timed, r.fence.Task); err == nil && !killed {
					end(errLost)
				} else if err != nil || k.Fence.Epoch <= known {
					continue
				}
				end(errKilled)
			}
			return
		}
	}()
	return timed, func() { stop(); end(nil) }
}

// withoutWork is the end of an attempt whose tree stays as it is.
func withoutWork(why error) string {
	return commands.CleanLine("all of it: it could not be collected: "+why.Error(), commands.MaxKept)
}
