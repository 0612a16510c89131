package spoke

import (
	"context"
	"sync"
	"time"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// What began is told as begun, also where the database did not take that at first: the start is recorded while the agent runs, and with
// its end at the latest.

// unrecorded are the starts whose record has failed, or whose fence a kill has taken before.
type unrecorded struct {
	mu     sync.Mutex // guards starts
	starts map[ofAttempt]*backlog.Start
}

// ofAttempt names an attempt whoever has its fence: a kill takes that.
type ofAttempt struct {
	task   string
	number int
}

func attemptOf(f backlog.Fence) ofAttempt { return ofAttempt{f.Task, f.Attempt} }

// record is [backlog.Backlog.Record] of a batch. One batch is answered before the next one is made, so an end finds a start whose
// record has failed before it.
func (s *Spoke) record(ctx context.Context, batch []backlog.Progress) ([]bool, error) {
	s.starts.join(batch)
	held, err := s.backlog.Record(ctx, batch)
	s.starts.note(batch, held, err)
	return held, err
}

// join gives ends the starts of their attempts whose record has failed, unless these are in the batch by themselves.
func (u *unrecorded) join(batch []backlog.Progress) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.starts) == 0 {
		return
	}
	alone := map[ofAttempt]bool{}
	for _, p := range batch {
		if p.Start != nil {
			alone[attemptOf(p.Start.Fence)] = true
		}
	}
	for i, p := range batch {
		if p.End == nil {
			continue
		}
		if start := u.starts[attemptOf(p.End.Fence)]; start != nil && !alone[attemptOf(p.End.Fence)] {
			batch[i].Start = under(start, p.End.Fence)
		}
	}
}

// under is a start with the fence of its attempt's end, which a kill may have taken; nil = there is none.
func under(start *backlog.Start, f backlog.Fence) *backlog.Start {
	if start == nil {
		return nil
	}
	with := *start
	with.Fence = f
	return &with
}

// note keeps the starts of a batch that were not recorded, and forgets the others. Those that went with an end are left to
// who records that, see took.
func (u *unrecorded) note(batch []backlog.Progress, held []bool, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for i, p := range batch {
		switch {
		case p.Start == nil:
		case err != nil || !held[i]:
			if u.starts == nil {
				u.starts = map[ofAttempt]*backlog.Start{}
			}
			u.starts[attemptOf(p.Start.Fence)] = p.Start
		case p.End == nil:
			delete(u.starts, attemptOf(p.Start.Fence))
		}
	}
}

// took forgets the start of an attempt whose end is recorded, or that nobody follows any more, and returns it; nil where it was recorded
// by itself.
func (u *unrecorded) took(f backlog.Fence) *backlog.Start {
	u.mu.Lock()
	defer u.mu.Unlock()
	start := u.starts[attemptOf(f)]
	delete(u.starts, attemptOf(f))
	return start
}

// follow attends an agent while its start is recorded. One that is as quick as the database has its start and its end recorded in one
// transaction. A fence that no longer holds ends it.
func (s *Spoke) follow(ctx context.Context, r *run, agent *supervisor.Agent) {
	proven := s.proveLater(ctx, r, agent, agent.StartedAt())
	var proof sync.WaitGroup
	proof.Go(proven)
	s.attend(ctx, r, agent)
	proof.Wait()
}

// proveLater records that the agent runs, or has run where there is none any more. When it returns the start goes before an end that is
// recorded later. The function that it returns waits until it is stored, or left to the end. at is when it was executed, zero where nothing
// says so.
func (s *Spoke) proveLater(ctx context.Context, r *run, agent *supervisor.Agent, at time.Time) func() {
	start := s.startOf(r, agent, at)
	wait := s.progress.Hand(ctx, backlog.Progress{Start: start, Conn: r.asker})
	return func() {
		defer close(r.proven)
		held, err := wait(ctx)
		for pause := 100 * time.Millisecond; err != nil; pause = min(2*pause, 5*time.Second) {
			s.Log.ErrorContext(ctx, "recording a start; it is tried again, and at the latest with the end", "id", r.fence.Task, "err", err)
			if !runsFor(ctx, r, agent, pause) {
				return
			}
			held, err = s.progress.Submit(ctx, backlog.Progress{Start: start, Conn: r.asker})
		}
		if !held {
			s.live.lose(r)
		} else if !r.before || agent != nil { // else it has ended, which is told next
			s.sayStart(ctx, r, start)
		}
	}
}

// runsFor waits, and reports whether the agent still runs then and this process follows it.
func runsFor(ctx context.Context, r *run, agent *supervisor.Agent, pause time.Duration) bool {
	if agent == nil {
		return false
	}
	select {
	case <-ctx.Done():
	case <-r.leave:
	case <-agent.Done():
	case <-time.After(pause):
		return true
	}
	return false
}

// startOf is the proof that the agent runs, or has run.
func (s *Spoke) startOf(r *run, agent *supervisor.Agent, at time.Time) *backlog.Start {
	start := &backlog.Start{Fence: r.fence, BootID: s.bootID, Policy: r.policy, Isolation: r.level, Overruns: s.overrunsAfter(r), Patience: s.OverrunPatience, At: at}
	shim := r.shim
	if agent != nil {
		start.Pid, shim = agent.Pid(), agent.Shim()
	}
	start.Shim = backlog.Shim{Pid: shim.Pid, Start: int64(shim.Start), Cgroup: shim.Cgroup}
	return start
}

// executedAt is when an agent that has ended was executed, as far as its record is to be believed.
func executedAt(x supervisor.Exit) time.Time {
	if x.Damage != nil {
		return time.Time{}
	}
	return x.StartedAt
}
