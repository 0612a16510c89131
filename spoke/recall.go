package spoke

import (
	"context"
	"os"
	"slices"

	"github.com/spawnmesh/spawnmesh/commands"
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
		if last := s.backlog.Found(c.ID, t.Task); t.State == commands.Paused && (t.Attempt == 0 || t.Over) && last > t.Attempt { // the hub was not told yet
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

// takeBack finds agents that are paused as far as the database knows, and went on after the backup that it was restored from: an
// attempt that it does not know has a directory.
func (s *Spoke) takeBack(ctx context.Context) error {
	list, err := s.backlog.PausedAgents(ctx)
	if err != nil {
		return err
	}
	var ran []backlog.PausedAgent
	for _, a := range list {
		if last := s.backlog.Found(a.Conn, a.Task); last > a.Attempt {
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
				s.lookForBegun(c.ID, a.Task)
			}
			after = list[len(list)-1].Task
		}
	}
	return nil
}

// lookForBegun is findBegun for a task of conn that somebody says a word about. It comes before the transaction of that word.
func (s *Spoke) lookForBegun(conn, task string) {
	if !s.backlog.Restored() {
		return
	}
	if r := s.live.get(task); r == nil || s.passed(r) {
		s.backlog.NoteBegun(task, s.backlog.Found(conn, task))
	}
}

// passed reports whether a later attempt has begun than one that is taken over after a restore. What has an agent here is the last one: that
// may have made a directory.
func (s *Spoke) passed(r *run) bool {
	return r.forgot && s.live.agentOf(r) == nil && s.backlog.Found(r.asker, r.fence.Task) > r.fence.Attempt
}

// Backlog is that of the database db of the instance in dir: it tells hubs of their agents, and finds what had begun before a restore.
func Backlog(db *store.DB, dir string) *backlog.Backlog {
	b := backlog.Open(db, Answer)
	b.Found = func(conn, task string) int { return lastAttempt(dir, conn, task) }
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

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
