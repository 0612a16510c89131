package spoke

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
)

// keepAttempts is how long the directory of an ended attempt stays, and longer
// while output in it was not sent yet.
const keepAttempts = 7 * 24 * time.Hour

// sweep moves what only time moves: due tasks become claimable, expired leases
// are taken back, tasks that were not started in time end, budget windows begin
// anew, old rows and directories go.
func (s *Spoke) sweep(ctx context.Context) error {
	var retired time.Time
	for {
		wait := s.sweepOnce(ctx)
		if time.Since(retired) > time.Minute {
			if unsent, known := s.output.Unsent(); known {
				retired = time.Now()
				s.retire(ctx, unsent)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

func (s *Spoke) sweepOnce(ctx context.Context) time.Duration {
	if n, err := s.backlog.ReadyCount(ctx); err == nil {
		s.queued.Store(int64(n)) // heartbeats tell it, and must not wait for the database
	}
	swept, err := s.backlog.Sweep(ctx, time.Second)
	if err != nil {
		if ctx.Err() == nil {
			s.Log.ErrorContext(ctx, "moving what time moves", "err", err)
		}
		return time.Second
	}
	if swept.Promoted+swept.Limits > 0 || swept.Reclaimed > 0 {
		ring(s.work)
	}
	if swept.Expired > 0 || swept.Reclaimed > 0 || swept.Limits > 0 {
		s.board.Wake()
	}
	return max(swept.Next, 10*time.Millisecond)
}

// retire removes old rows and the directories of old attempts, but none of the
// tasks whose output is unsent.
func (s *Spoke) retire(ctx context.Context, unsent map[string]bool) {
	if _, err := s.DB.Prune(ctx, time.Minute/2, time.Minute/2); err != nil && ctx.Err() == nil {
		s.Log.ErrorContext(ctx, "pruning old rows", "err", err)
	}
	if err := s.backlog.DropOutput(ctx); err != nil && ctx.Err() == nil {
		s.Log.ErrorContext(ctx, "forgetting output for ended connections", "err", err)
	}
	dirs, _ := filepath.Glob(filepath.Join(s.Dir, "agents", "*", "*")) // the pattern is well formed
	for _, dir := range dirs {
		if !unsent[filepath.Base(filepath.Dir(dir))] {
			s.retireAttempt(ctx, dir)
		}
	}
}

// retireAttempt removes the directory of an attempt that has ended long ago. One
// that may still run stays, however old it is.
func (s *Spoke) retireAttempt(ctx context.Context, dir string) {
	task := filepath.Base(filepath.Dir(dir))
	info, err := os.Stat(dir)
	if err != nil || time.Since(info.ModTime()) < keepAttempts || s.live.get(task) != nil {
		return
	}
	err = supervisor.Remove(dir)
	if errors.Is(err, supervisor.ErrRunning) {
		s.Log.DebugContext(ctx, "an old attempt is not known to be over", "id", task)
	} else if err != nil {
		s.Log.WarnContext(ctx, "removing an old attempt", "id", task, "err", err)
	}
	_ = os.Remove(filepath.Dir(dir)) // with the last attempt; before, it is not empty
}
