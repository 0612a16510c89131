package spoke

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/spoke/hostfault"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// The directory of an attempt outlives the row of its task, after a restore and where retention is shorter than
// [keepAttempts]. Its path has the task's id, which another hub may know. So a note in it says whose it is.

// ownerNote is the file among an attempt's control files that says which connection asked for it. It is written before
// anything of the order is, and before the shim starts. So a directory without one is of an attempt that had got nothing of its order,
// or of a spoke of before this note: it is anybody's who asks for its task, as it was then. So is one with
// something else in its place: only an agent at isolation none can have put that there. A note that cannot be read is another's:
// any agent with the user of the spoke can close it.
const ownerNote = "connection"

// anothers reports whether the directory of an attempt is another connection's than conn. The error is a fault of this
// host: it cannot be told now.
func anothers(attempt, conn string) (bool, error) {
	raw, err := supervisor.ReadFile(ControlDir(attempt), ownerNote, 64)
	switch {
	case hostfault.Is(err):
		return false, fmt.Errorf("looking whose the directory of an attempt is: %w", err)
	case err != nil:
		return errors.Is(err, supervisor.ErrClosed) || !errors.Is(err, supervisor.ErrUnreadable), nil
	}
	owner := string(raw)
	return owner != conn && uuid.Validate(owner) == nil, nil
}

// attemptsHere are the directories of the attempts of a task by their numbers. What no task comes to is left out: an agent that is not
// kept from it may make directories. The error is a fault of this host: nothing is known of them then.
func attemptsHere(dir, task string) (map[int]string, error) {
	at, dirs := agentDir(dir, task), map[int]string{}
	entries, err := os.ReadDir(at)
	if errors.Is(err, fs.ErrPermission) {
		supervisor.Reopen(at)
		entries, err = os.ReadDir(at)
	}
	if hostfault.Is(err) {
		return nil, fmt.Errorf("looking for attempts of a task: %w", err)
	}
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil && n <= maxAttempt {
			dirs[n] = filepath.Join(at, e.Name())
		}
	}
	return dirs, nil
}

// lastAttempt is the highest number of an attempt of a task of conn that has a directory here; 0 = none. The error is a fault of this host.
// One whose note a disk does not give counts: it is taken over, and whose it is is told before anything is done to it. Nothing below it is
// read: a bad disk may take seconds for each.
func lastAttempt(dir, conn, task string) (last int, err error) {
	dirs, err := attemptsHere(dir, task)
	if err != nil {
		return 0, err
	}
	for _, n := range slices.Backward(slices.Sorted(maps.Keys(dirs))) {
		others, err := anothers(dirs[n], conn)
		if hostfault.NoRoom(err) {
			return 0, err
		}
		if !others {
			return max(n, 0), nil
		}
	}
	return 0, nil
}

// refuseAnothers refuses an order whose task has a directory here that is another connection's, in the words in which it was refused as
// long as the row of that task was there: that one's order may come again.
func (s *Spoke) refuseAnothers(ctx context.Context, conn, task string) *commands.Refused {
	dirs, _ := attemptsHere(s.Dir, task) // what cannot be told now is told when its attempt begins
	for _, at := range dirs {
		if others, err := anothers(at, conn); err != nil || !others {
			continue
		}
		if known, err := s.backlog.Known(ctx, conn, task); err == nil && known {
			return nil
		}
		return backlog.Conflicts(task)
	}
	return nil
}

// isOwn finds out whose the directory of an attempt is that is taken over; nothing of it is told before. Of a start that the database knows
// that is known. What cannot be told now is tried again, without a slot; false = its end is recorded, or this process stops: it is another's,
// or somebody has ended it and this host does not tell for a while whose it is.
func (s *Spoke) isOwn(ctx context.Context, r *run) bool {
	_, await := s.awaiting(ctx, r)
	defer s.live.awaitsNoMore(r)
	for began := time.Now(); ; {
		others, err := s.whose(r)
		switch {
		case r.bootID != "", err == nil && !others:
			r.mine.Store(true)
			s.output.Begun()
			return true
		case err == nil:
			if err = s.endAnothers(ctx, r); err == nil {
				return false
			}
		case !hostfault.NoRoom(err) && time.Since(began) > s.left.patience() && s.isEnded(ctx, r):
			if err = s.endUntold(ctx, r, err); err == nil {
				return false
			}
		}
		s.Log.ErrorContext(ctx, "taking over an attempt; it will be tried again", "id", r.fence.Task, "err", err)
		await()
		if !r.rest(ctx, min(5*time.Second, s.left.patience())) {
			return false
		}
	}
}

// whose is anothers for an attempt that is taken over. Whether its directory is there is looked at first, where it could not be before.
func (s *Spoke) whose(r *run) (others bool, err error) {
	if r.fault != nil {
		if r.found, r.fault = exists(r.dir); r.fault != nil {
			return false, r.fault
		}
	}
	return anothers(r.dir, r.asker)
}

// isEnded reports whether somebody has ended an attempt: by a kill, or by what has taken its lease.
func (s *Spoke) isEnded(ctx context.Context, r *run) bool {
	_, killed, err := s.backlog.PendingKill(ctx, r.fence.Task)
	return r.isLost() || killed && err == nil
}

// endUntold ends an attempt that somebody has ended and of which this host does not tell whose it is. After a restore what has its marker
// may be another's: it has no lease, so its shim ends it.
func (s *Spoke) endUntold(ctx context.Context, r *run, fault error) error {
	end := s.endLeft
	if s.backlog.Restored() {
		end = s.isGone
	}
	if err := end(r); err != nil {
		return fmt.Errorf("%w; its directory: %w", err, fault)
	}
	s.finish(ctx, r, r.fence, backlog.End{Outcome: commands.Interrupted, Exit: commands.Exit{Code: -1, Error: commands.Clean("nothing of it can be read: "+withoutPath(fault), 1000)}})
	return nil
}

// endAnothers ends an attempt whose directory is another connection's. Nothing is started, and nothing there is touched. In a database
// that was never restored the row of an attempt outlives its agent: what has the marker is of this attempt, whose agent has made the
// note another's before its start was recorded.
func (s *Spoke) endAnothers(ctx context.Context, r *run) error {
	if !s.backlog.Restored() {
		if err := s.endLeft(r); err != nil {
			return err
		}
	}
	s.Log.WarnContext(ctx, "the directory of an attempt is that of a task of another connection with the same id; nothing is started, and nothing in it is touched",
		"id", r.fence.Task, "attempt", r.fence.Attempt, "connection", s.board.Name(r.asker), "directory", r.dir)
	s.finish(ctx, r, r.fence, backlog.End{Outcome: commands.CouldNotStart, Why: commands.IDUsed,
		Exit: commands.Exit{Code: -1, Error: "not started: this spoke has another task under this id; order it again with another id, or none"}})
	return nil
}
