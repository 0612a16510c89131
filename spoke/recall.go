package spoke

import (
	"context"
	"os"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// A spoke that was restored from a backup may have run what its database still
// has to run. Three things keep that from happening again: the hub is asked what
// this spoke has said, and until it answers nothing of it is claimed; an attempt
// that had started is taken over and never started; and so is one whose
// directory is there.

// takeRecalled takes in what a hub recalls of this spoke's words.
func (s *Spoke) takeRecalled(ctx context.Context, tx *store.Tx, c store.Connection, r *commands.Recalled) error {
	s.restored.Store(true)
	return s.backlog.Recall(ctx, tx, c.ID, r.Tasks)
}

// recalled waits, before the end of an attempt of the time before a restore is
// recorded, until the hub has said what it knows. It reports whether to go on.
func (s *Spoke) recalled(ctx context.Context, r *run) bool {
	for {
		pasts, err := s.backlog.Pasts(ctx, []string{r.fence.Task})
		if past := pasts[r.fence.Task]; err == nil && !past.Asked {
			r.begun = r.begun || r.fence.Attempt <= past.Begun
			return true
		}
		if err != nil && ctx.Err() == nil {
			s.Log.ErrorContext(ctx, "looking for what the hub recalls; it is tried again", "id", r.fence.Task, "err", err)
		}
		select {
		case <-ctx.Done():
			return false
		case <-r.leave:
			return false
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
