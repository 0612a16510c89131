package spoke

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/wait"
	"github.com/spawnmesh/spawnmesh/spoke/hostfault"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// maxAttempt is more than the attempts of any task: 100 each after failures, losses and limits, and ten retries by hand of them all.
const maxAttempt = 10_000

// A spoke that was restored from a backup may have run what its database still
// has to run. Three things keep that from happening again: the hub is asked what
// this spoke has said, and until it answers nothing of it is claimed; an attempt
// that had started is taken over and never started; and so is one whose
// directory is there. A word about such an attempt before that is carried out on it, too.

// takeRecalled takes in what a hub recalls of this spoke's words.
func (s *Spoke) takeRecalled(ctx context.Context, tx *store.Tx, c store.Connection, r *commands.Recalled) (strange []error, err error) {
	tasks := slices.Clone(r.Tasks)
	for i, t := range tasks {
		if t.State != commands.Paused || t.Attempt != 0 && !t.Over {
			continue
		}
		last, err := s.backlog.Found(c.ID, t.Task)
		if err != nil {
			return nil, err
		}
		if last > t.Attempt { // the hub was not told yet
			tasks[i].Attempt, tasks[i].Over = last, false
		}
	}
	return nil, s.backlog.Recall(ctx, tx, c.ID, tasks)
}

// mayStart hears that what a hub kept from starting may start: it has said all that it recalls, too.
func (s *Spoke) mayStart() {
	s.work.Send()
	s.live.recalls.Send()
}

// lookForAttempts looks for what the database does not know since a restore. Before it is found no word about it can be obeyed: a fault of this
// host is waited out.
func (s *Spoke) lookForAttempts(ctx context.Context) error {
	for {
		err := s.takeBack(ctx)
		if err == nil {
			err = s.findBegun(ctx)
		}
		if !hostfault.Is(err) {
			return err
		}
		s.Log.ErrorContext(ctx, "looking for what has begun since the backup; it will be tried again, and nothing is begun before", "err", err)
		if wait.For(ctx, 5*time.Second) != nil {
			return err
		}
	}
}

// takeBack finds agents that are paused as far as the database knows, and went on after the backup that it was restored from: an
// attempt that it does not know has a directory.
func (s *Spoke) takeBack(ctx context.Context) error {
	list, err := s.backlog.PausedAgents(ctx)
	if err != nil {
		return err
	}
	var ran []backlog.PausedAgent
	for _, a := range list {
		last, err := s.backlog.Found(a.Conn, a.Task)
		if err != nil {
			return err
		}
		if last > a.Attempt {
			s.Log.WarnContext(ctx, "an agent is paused as far as is known, and the directory of a later attempt is there; that attempt is taken over", "id", a.Task, "attempt", last)
			ran = append(ran, backlog.PausedAgent{Task: a.Task, Attempt: last})
		}
	}
	return s.backlog.TakeBack(ctx, ran)
}

// findBegun notes the last attempts that have a directory here, of all agents that wait: a hub that
// ends ends them in one transaction, which looks at no disk.
func (s *Spoke) findBegun(ctx context.Context) error {
	if !s.backlog.Restored() {
		return nil
	}
	conns, err := s.DB.Connections(ctx)
	if err != nil {
		return err
	}
	for _, c := range conns {
		after := ""
		for {
			list, err := s.backlog.WaitingAgents(ctx, c.ID, after)
			if err != nil {
				return err
			}
			if len(list) == 0 {
				break
			}
			for _, a := range list {
				if err := s.lookForBegun(c.ID, a.Task); err != nil {
					return err
				}
			}
			after = list[len(list)-1].Task
		}
	}
	return nil
}

// lookForBegun is findBegun for a task of conn that somebody says a word about. It comes before the transaction of that word. The error is a
// fault of this host: what the word is about cannot be told now.
func (s *Spoke) lookForBegun(conn, task string) error {
	if !s.backlog.Restored() {
		return nil
	}
	if r := s.live.get(task); r != nil {
		if later, err := s.passed(r); err != nil || later == 0 {
			return err
		}
	}
	last, err := s.backlog.Found(conn, task)
	if err == nil {
		s.backlog.NoteBegun(task, last)
	}
	return err
}

// passed returns the attempt that has begun later than one that is taken over after a restore; 0 = none. What has an agent here is the last
// one: that may have made a directory.
func (s *Spoke) passed(r *run) (later int, err error) {
	if !r.forgot || s.live.agentOf(r) != nil {
		return 0, nil
	}
	last, err := s.backlog.Found(r.asker, r.fence.Task)
	if err != nil || last <= r.fence.Attempt {
		return 0, err
	}
	return last, nil
}

// Backlog is that of the database db of the instance in dir: it tells hubs of their agents, and finds what had begun before a restore.
func Backlog(db *store.DB, dir string) *backlog.Backlog {
	b := backlog.Open(db, Answer)
	b.Found = func(conn, task string) (int, error) { return lastAttempt(dir, conn, task) }
	return b
}

// standStill lets the agent of an attempt that is taken over stand still where the last word says so.
func (s *Spoke) standStill(ctx context.Context, r *run) {
	if r.bootID != "" { // its start is known, and so is its pause
		return
	}
	paused, err := s.backlog.KeepPaused(ctx, r.fence)
	if err != nil && ctx.Err() == nil {
		s.Log.ErrorContext(ctx, "looking whether an agent that is taken over is paused", "id", r.fence.Task, "err", err)
	}
	if paused {
		s.live.pause(backlog.PauseRun{Fence: r.fence, Paused: true})
	}
}

// believe sorts the end of an attempt that the database may not know to have been told to end: its record is believed. An agent that
// has made that itself forgoes the attempts that would follow.
func (s *Spoke) believe(ctx context.Context, r *run, x *supervisor.Exit) {
	if !r.forgot || x.Outcome != supervisor.Killed && x.Outcome != supervisor.TimedOut {
		return
	}
	s.Log.InfoContext(ctx, "an attempt was ended after the backup that this spoke was restored from, as its record says", "id", r.fence.Task, "attempt", r.fence.Attempt, "outcome", x.Outcome, "why", x.Reason)
	switch {
	case x.Reason == overrunWhy: // a failure
	case r.later || x.Reason == leaseWhy: // nobody wanted the end of its task
		x.Outcome, x.Reason = supervisor.Lost, "it was ended before this spoke was restored from a backup: "+x.Reason
	case x.Reason == (backlog.KillRun{Cancel: true}).Why() && x.Code == 0 && x.Signal == "":
		x.Outcome = supervisor.Exited // it has completed in the time that it was given
	}
}

// exists reports whether something is at a path in the directory of a task. What an agent has closed for good counts as there.
func exists(path string) bool {
	_, err := os.Lstat(path)
	if errors.Is(err, fs.ErrPermission) {
		supervisor.Reopen(filepath.Dir(path))
		_, err = os.Lstat(path)
	}
	return err == nil || errors.Is(err, fs.ErrPermission)
}
