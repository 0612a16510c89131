package spoke

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
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

// takeRecalled takes in what a hub recalls of this spoke's words. Its transaction looks at a disk for a bounded time. What cannot be told
// now holds up nothing else of the hub: a word about it looks once more, and what is there is never started over.
func (s *Spoke) takeRecalled(ctx context.Context, tx *store.Tx, c store.Connection, r *commands.Recalled) (strange []error, err error) {
	tasks := slices.Clone(r.Tasks)
	var paused []string
	for _, t := range tasks {
		if mayHaveGoneOn(t) {
			paused = append(paused, t.Task)
		}
	}
	last, untold, err := s.backlog.BegunHere(c.ID, paused)
	if err != nil {
		return nil, err
	}
	for i, t := range tasks {
		if mayHaveGoneOn(t) && last[t.Task] > t.Attempt { // the hub was not told yet
			tasks[i].Attempt, tasks[i].Over = last[t.Task], false
		}
	}
	for task, err := range untold {
		s.Log.ErrorContext(ctx, "looking for what has begun of an agent that the hub recalls as paused", "id", task, "err", err)
	}
	return nil, s.backlog.Recall(ctx, tx, c.ID, tasks)
}

// mayHaveGoneOn reports whether an agent may have gone on without word to its hub, which recalls it as paused and without an attempt.
func mayHaveGoneOn(t commands.TaskStanding) bool {
	return t.State == commands.Paused && (t.Attempt == 0 || t.Over)
}

// mayStart hears that what a hub kept from starting may start: it has said all that it recalls, too.
func (s *Spoke) mayStart() {
	s.work.Send()
	s.live.recalls.Send()
}

// lookForAttempts looks for what the database does not know since a restore. Before it is found no word about it can be obeyed: a fault of this
// host is waited out, that of a disk for a while. What cannot be read then holds up nothing else, and is not started over.
func (s *Spoke) lookForAttempts(ctx context.Context) error {
	if !s.backlog.Restored() {
		return nil
	}
	for began := time.Now(); ; {
		f := faults{until: began.Add(s.left.patience())}
		err := s.takeBack(ctx, &f)
		if err == nil {
			err = s.findBegun(ctx, &f)
		}
		if err = cmp.Or(err, ctx.Err()); err != nil || f.first == nil {
			return err
		}
		if f.over() {
			s.Log.ErrorContext(ctx, "what has begun of some agents since the backup cannot be told, by a fault of this host; the others go on", "agents", f.n, "err", f.first)
			return nil
		}
		s.Log.ErrorContext(ctx, "looking for what has begun since the backup; it will be tried again, and nothing is begun before", "err", f.first)
		if err := wait.For(ctx, min(5*time.Second, s.left.patience())); err != nil {
			return err
		}
	}
}

// faults are those of this host in one look at all agents. Where it has no room nothing is told of any, and the look ends.
type faults struct {
	until time.Time // so long a disk has to mend
	first error     // one that says that there is no room, if any does
	n     int
}

// add notes what came of one agent, and reports whether to go on with the next.
func (f *faults) add(err error) bool {
	if err == nil {
		return true
	}
	f.n++
	if f.first == nil || hostfault.NoRoom(err) {
		f.first = err
	}
	return !hostfault.NoRoom(err)
}

// over reports whether it was waited for a disk for long enough.
func (f *faults) over() bool { return !hostfault.NoRoom(f.first) && !time.Now().Before(f.until) }

// takeBack finds agents that are paused as far as the database knows, and went on after the backup that it was restored from: an
// attempt that it does not know has a directory.
func (s *Spoke) takeBack(ctx context.Context, f *faults) error {
	list, err := s.backlog.PausedAgents(ctx)
	if err != nil {
		return err
	}
	var ran []backlog.PausedAgent
	for _, a := range list {
		last, err := s.backlog.Found(a.Conn, a.Task)
		if !f.add(err) || ctx.Err() != nil {
			return ctx.Err()
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
func (s *Spoke) findBegun(ctx context.Context, f *faults) error {
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
				if !f.add(s.lookForBegun(c.ID, a.Task)) || ctx.Err() != nil {
					return ctx.Err()
				}
			}
			after = list[len(list)-1].Task
		}
	}
	return nil
}

// lookForBegun is findBegun for a task of conn that somebody says a word about. It comes before the transaction of that word. The error is a
// fault of this host: what the word is about cannot be told now. A disk that fails keeps no word for ever from an attempt that is taken over.
func (s *Spoke) lookForBegun(conn, task string) error {
	if !s.backlog.Restored() {
		return nil
	}
	if r := s.live.get(task); r != nil {
		later, err := s.passed(r)
		if errors.Is(err, backlog.ErrUntold) && time.Since(r.came) > s.left.patience() {
			return nil // the word is about what is taken over
		}
		if err != nil || later == 0 {
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
	b.Found = func(conn, task string) (int, error) {
		last, err := lastAttempt(dir, conn, task)
		if err != nil && !hostfault.NoRoom(err) {
			err = fmt.Errorf("%w: %w", backlog.ErrUntold, err)
		}
		return last, err
	}
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

// exists reports whether something is at a path in the directory of a task. What an agent has closed for good counts as there: nothing
// is started there. The error is a fault of this host: it cannot be told now.
func exists(path string) (bool, error) {
	_, err := os.Lstat(path)
	if errors.Is(err, fs.ErrPermission) {
		supervisor.Reopen(filepath.Dir(path))
		_, err = os.Lstat(path)
	}
	if hostfault.Is(err) {
		return false, fmt.Errorf("looking whether an attempt has a directory: %w", err)
	}
	return !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR), nil
}
