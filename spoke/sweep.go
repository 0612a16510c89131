package spoke

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/internal/wait"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
	"github.com/spawnmesh/spawnmesh/store"
)

// keepAttempts is how long the directory of an ended attempt stays, and longer
// while output in it was not sent yet.
const keepAttempts = 7 * 24 * time.Hour

// betweenSweeps is the least time between two sweeps, unless something is due before. What
// this process has written, and what another one says that it has, may be due earlier
// than was known, and is looked at at once.
const betweenSweeps = time.Second

// sweep moves what only time moves, when its time has come: due tasks become
// claimable, expired leases are taken back, tasks that were not started in time end,
// budget windows begin anew. Old directories go now and then.
func (s *Spoke) sweep(ctx context.Context) error {
	var retired time.Time
	for ctx.Err() == nil {
		began := time.Now()
		next := began.Add(s.sweepOnce(ctx))
		if time.Since(retired) > time.Minute {
			if unsent, known := s.output.Unsent(); known {
				retired = time.Now()
				s.retire(ctx, unsent)
				if err := s.retireCheckpoints(ctx); err != nil && ctx.Err() == nil {
					s.Log.WarnContext(ctx, "removing checkpoints of agents that are over; it is tried again", "err", err)
				}
				s.transfers.Look() // what a hub has not taken is due again
				s.sayKept(ctx)
			}
		}
		s.awaitDue(ctx, began.Add(betweenSweeps), next)
	}
	return nil
}

// awaitDue waits until next, or until something was written and it is not too early.
func (s *Spoke) awaitDue(ctx context.Context, early, next time.Time) {
	if !early.Before(next) {
		_ = wait.For(ctx, time.Until(next))
		return
	}
	_ = wait.For(ctx, time.Until(early))
	select {
	case <-ctx.Done():
	case <-s.written:
	case <-time.After(time.Until(next)):
	}
}

// sweepOnce returns how long nothing more is due, as far as is known.
func (s *Spoke) sweepOnce(ctx context.Context) time.Duration {
	began := time.Now()
	swept, err := s.backlog.Sweep(ctx, s.board.QuietFor())
	s.Counters.Swept(time.Since(began))
	s.Counters.Reclaimed(swept.Reclaimed)
	more := (err == nil || swept.Ready > 0) && s.ready.count(swept.Ready) // it is counted before something else fails
	if more || swept.Promoted+swept.Limits+int64(swept.Lapsed) > 0 || swept.Reclaimed > 0 {
		s.work.Send()
	}
	switch {
	case err == nil:
		s.swept.Store(time.Now().UnixMilli())
	case ctx.Err() == nil:
		s.Log.ErrorContext(ctx, "moving what time moves", "err", err)
		swept.Next = betweenSweeps
	}
	s.noteUntold(ctx, swept.Untold)
	return max(min(swept.Next, s.lookForOverruns(ctx), s.lookForHubs(ctx)), 10*time.Millisecond)
}

// noteUntold says when orders do not expire by a fault of this host, and when that is over.
func (s *Spoke) noteUntold(ctx context.Context, untold map[string]error) {
	for task, err := range s.untold.set(untold) {
		s.Log.WarnContext(ctx, "an order whose time is over cannot be told not to have begun before the restore, by a fault of this host; it waits until it can", "id", task, "err", err)
	}
}

// lastSweep is when everything that was due was moved; zero = not yet.
func (s *Spoke) lastSweep() time.Time {
	if at := s.swept.Load(); at != 0 {
		return time.UnixMilli(at)
	}
	return time.Time{}
}

// pruneAgain removes old rows now and then. That may take long, and what is due does not wait for it.
func (s *Spoke) pruneAgain(ctx context.Context) error {
	for ctx.Err() == nil {
		_ = wait.For(ctx, s.prune(ctx))
	}
	return nil
}

// prune removes old rows, and returns when to do so again.
func (s *Spoke) prune(ctx context.Context) time.Duration {
	removed, err := s.DB.Prune(ctx, time.Minute/2, time.Minute/2)
	if err != nil && ctx.Err() == nil {
		s.Log.ErrorContext(ctx, "pruning old rows", "err", err)
	}
	if err := s.backlog.DropOutput(ctx); err != nil && ctx.Err() == nil {
		s.Log.ErrorContext(ctx, "forgetting output for ended connections", "err", err)
	}
	failed, wrong := s.backlog.FailCircles(ctx)
	if wrong != nil && ctx.Err() == nil {
		s.Log.ErrorContext(ctx, "failing tasks that wait for each other", "err", wrong)
	}
	if len(failed) > 0 {
		s.Log.WarnContext(ctx, "tasks waited for each other, and were failed", "tasks", len(failed))
	}
	return store.PruneAgain(removed, err)
}

// retire removes the directories of old attempts, but none of the tasks whose output
// is unsent.
func (s *Spoke) retire(ctx context.Context, unsent map[string]bool) {
	dirs, _ := filepath.Glob(filepath.Join(s.Dir, "agents", "*", "*")) // the pattern is well formed
	failed := map[string]error{}
	held, err := s.backlog.Held(ctx, s.withRepos())
	if err != nil {
		s.Log.WarnContext(ctx, "looking for what hubs hold; working trees stay", "err", err)
	}
	open, err := s.backlog.Open(ctx, s.withRepos())
	if err != nil {
		s.Log.WarnContext(ctx, "looking for tasks that are not over; working trees stay", "err", err)
		open = s.withRepos()
	}
	for _, dir := range dirs {
		task := filepath.Base(filepath.Dir(dir))
		if err := s.retireAttempt(ctx, dir, unsent[task] || s.keepsTree(dir, slices.Contains(held, task) && !slices.Contains(open, task))); err != nil {
			failed[dir] = err
		}
	}
	s.retireRepos(ctx, failed)
	for dir, err := range s.stuck.set(failed) {
		s.Log.WarnContext(ctx, "an old attempt cannot be removed; it is tried again every minute, and doctor shows it", "dir", dir, "err", err)
	}
}

// stuck are what could not be removed the last time, and why.
type stuck struct {
	mu   sync.Mutex // guards left
	left map[string]error
}

// set replaces them and returns those that are new.
func (s *stuck) set(left map[string]error) map[string]error {
	s.mu.Lock()
	defer s.mu.Unlock()
	fresh := maps.Clone(left)
	maps.DeleteFunc(fresh, func(name string, _ error) bool { return s.left[name] != nil })
	s.left = left
	return fresh
}

// check is what doctor says of them.
func (s *stuck) check() []control.Check {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.left) == 0 {
		return nil
	}
	first := slices.Min(slices.Collect(maps.Keys(s.left)))
	return []control.Check{{Name: "old attempts", Problem: fmt.Sprintf("%d directories cannot be removed; of %s: %v; remove it by hand", len(s.left), first, s.left[first])}}
}

// retireAttempt removes the directory of an attempt that has ended long ago, unless its output is unsent. One
// that may still run stays, however old it is.
func (s *Spoke) retireAttempt(ctx context.Context, dir string, unsent bool) error {
	task := filepath.Base(filepath.Dir(dir))
	// The directory of the control files changes with the record of the end. It may be removed
	// already, or its agent has put something in its place.
	info, err := os.Stat(ControlDir(dir))
	if err != nil {
		info, err = os.Stat(dir)
	}
	if err != nil || s.live.get(task) != nil {
		return nil
	}
	s.reclaim(dir)
	if unsent || time.Since(info.ModTime()) < keepAttempts {
		return nil
	}
	err = removeAttempt(dir)
	if errors.Is(err, supervisor.ErrRunning) { // or its agent kept the record from being written
		err = s.removeUnrecorded(ctx, dir)
	}
	_ = os.Remove(filepath.Dir(dir)) // with the last attempt; before, it is not empty
	return err
}

// removeUnrecorded removes an attempt whose directory does not say that it is over, once
// nothing of it lives.
func (s *Spoke) removeUnrecorded(ctx context.Context, dir string) error {
	r := &run{dir: dir}
	user, former, err := s.usersOf(r)
	if err != nil {
		return err // what is left of it may run as a user that cannot be told
	}
	known := supervisor.Known{Marker: s.markerAt(dir), User: user, Former: former}
	ctx, done := context.WithTimeout(ctx, 2*time.Second)
	defer done()
	agent, _, err := supervisor.Adopt(ctx, ControlDir(dir), known)
	if agent != nil {
		s.Log.DebugContext(ctx, "an old attempt still runs", "dir", dir)
		return agent.Close()
	}
	if err != nil {
		return err
	}
	s.isolates.Release(r.user, r.own())
	return removeAttempt(dir)
}

// removeAttempt removes what an agent has left, and what is known of it, once it is known to be over.
func removeAttempt(dir string) error {
	if err := supervisor.Remove(ControlDir(dir)); err != nil {
		return err
	}
	return supervisor.RemoveAll(dir)
}
