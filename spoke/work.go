package spoke

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/spoke/hostfault"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// claimLoop fills free slots with claimed tasks, as many as fit at a time. late
// outlives ctx: what was started is followed to its end, or left to its shim.
func (s *Spoke) claimLoop(ctx, late context.Context) error {
	for {
		more, err := s.claimOrTakeOver(ctx, late)
		if err != nil && ctx.Err() == nil {
			s.Log.DebugContext(ctx, "claiming tasks", "err", err)
			s.noteClaim(ctx, err)
		}
		if more && err == nil {
			continue
		}
		if !s.awaitWork(ctx, err != nil) {
			return nil
		}
	}
}

// noteClaim says when claims begin to keep failing, and when they do no more.
func (s *Spoke) noteClaim(ctx context.Context, err error) {
	switch {
	case !s.claims.Note(err):
	case err != nil:
		s.Log.ErrorContext(ctx, "nothing can be claimed, so nothing new is started; it is tried again", "err", err)
	default:
		s.Log.InfoContext(ctx, "tasks are claimed again")
	}
}

// ClaimsFail is why nothing can be claimed, while that goes on; nil otherwise.
func (s *Spoke) ClaimsFail() error { return s.claims.Err() }

// awaitWork waits until it is time to claim, and reports false when ctx ends before. While
// tasks stand ready that were not to be had it is soon: nobody says when a window of a
// quota moves on, or a disk has room. Else a signal is all there is to wait for: the sweep
// sends it as well, for what came without one.
func (s *Spoke) awaitWork(ctx context.Context, failed bool) bool {
	var again <-chan time.Time
	if failed || s.ready.any() {
		again = time.After(cmp.Or(s.Idle, 2*time.Second))
	}
	for {
		select {
		case <-ctx.Done():
			return false
		case <-s.work:
			return true
		case <-again:
			return true
		case <-time.After(s.board.QuietFor()):
			s.hasRoom(ctx) // a full disk is said before there is work
		}
	}
}

// claimOrTakeOver claims, and reports whether there may be more. After a claim that
// failed it first looks for what that one took: its answer may have been lost, and
// nobody else takes it back. So it does for attempts that somebody else has opened.
func (s *Spoke) claimOrTakeOver(ctx, late context.Context) (more bool, err error) {
	if s.unsure || s.backlog.Opened() {
		if err := s.reconcile(ctx, late); err != nil {
			return false, err
		}
	}
	more, err = s.claim(ctx, late)
	if s.unsure = err != nil; s.unsure {
		err = errors.Join(err, s.reconcile(ctx, late))
	}
	return more, err
}

// claim claims for the slots that are free. As many as it asked for say that there may
// be more.
func (s *Spoke) claim(ctx, late context.Context) (more bool, err error) {
	s.ready.more.Store(true)
	free := s.Slots - s.live.count()
	if free <= 0 || !s.hasRoom(ctx) || ctx.Err() != nil {
		return false, nil
	}
	// The lease counts from before the claim, so that the shim never believes in
	// it longer than the database does.
	from, began := supervisor.Boottime(), time.Now()
	// A claim that a stop meets half-way is finished and worked on all the same.
	limit := min(free, batch)
	list, err := s.backlog.Claim(context.WithoutCancel(ctx), backlog.ClaimTerms{Owner: s.owner(), Capabilities: s.Policy.Now().Offers(), Limit: limit, Lease: s.Lease})
	if err != nil {
		return false, err
	}
	s.Counters.Claimed(len(list))
	pasts, err := s.pasts(context.WithoutCancel(ctx), list)
	if err != nil {
		return false, err // what was claimed is found by the next look
	}
	s.noteClaim(ctx, nil)
	if len(list) < limit {
		s.ready.more.Store(false) // what comes now sends a signal
	}
	for _, c := range list {
		r := &run{fence: c.Fence, spec: c.Spec, estimate: c.Spec.Estimate(), dir: s.attemptDir(c.Fence), asked: c.Asked, asker: c.Conn, state: commands.Claimed, from: began,
			begun: c.Fence.Attempt <= pasts[c.Fence.Task].Begun}
		there := s.isThere(ctx, r)
		if s.live.add(r); there {
			s.attempts.Go(func() { s.takeOver(late, r) })
		} else {
			s.attempts.Go(func() { s.run(late, r, from.Add(s.Lease)) })
		}
	}
	return len(list) == limit, nil
}

// isThere reports whether a claimed attempt is taken over: it had begun before a restore, or may have, or its directory is there. Where a
// fault of this host keeps that from being looked at, none is started: in a database that was never restored it has not begun.
func (s *Spoke) isThere(ctx context.Context, r *run) bool {
	if !r.begun {
		r.found, r.fault = exists(r.dir)
	}
	if r.found {
		s.Log.WarnContext(ctx, "the directory of an attempt was there before it; nothing is started in it", "id", r.fence.Task, "attempt", r.fence.Attempt, "directory", r.dir)
	}
	there := r.begun || r.found || r.fault != nil && s.backlog.Restored()
	r.forgot = there && s.backlog.Restored()
	r.mine.Store(!there && r.fault == nil)
	return there
}

// pasts returns what is known of claimed tasks from before a restore: a database that was
// restored from a backup gives out attempts once more.
func (s *Spoke) pasts(ctx context.Context, list []backlog.Claimed) (map[string]backlog.Past, error) {
	if len(list) == 0 || !s.backlog.Restored() {
		return nil, nil
	}
	tasks := make([]string, len(list))
	for i, c := range list {
		tasks[i] = c.Fence.Task
	}
	return s.backlog.Pasts(ctx, tasks)
}

// freed wakes the claimer when a slot was freed that it has a use for.
func (s *Spoke) freed(r *run) {
	if !r.over || s.ready.any() || s.backlog.Waits() {
		s.work.Send()
	}
}

// Marker tells the processes of an attempt of a spoke from all others of its host. It
// follows from what the attempt is: nothing that an agent can write to has a say in it, and
// a spoke whose database was restored from a backup finds what the attempt has left.
func Marker(spoke signing.InstanceID, task string, attempt int) string {
	return supervisor.MarkerOf(string(spoke) + "/" + task + "/" + strconv.Itoa(attempt))
}

func (s *Spoke) marker(f backlog.Fence) string {
	return Marker(s.Keys.InstanceID(), f.Task, f.Attempt)
}

// markerAt is the marker of the attempt in a directory, which attemptDir has named.
func (s *Spoke) markerAt(dir string) string {
	number, _ := strconv.Atoi(filepath.Base(dir))
	return Marker(s.Keys.InstanceID(), filepath.Base(filepath.Dir(dir)), number)
}

// maxRenewal bounds how long a fence may be lost before its agent is ended, where
// leases are long.
const maxRenewal = 20 * time.Second

// renew extends the leases of all live attempts in one statement, at a third of
// the lease. It is the supervisor's word, never the agent's, that work goes on.
func (s *Spoke) renew(ctx context.Context) error {
	tick := time.NewTicker(min(s.Lease/3, maxRenewal))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := s.renewOnce(ctx); err != nil && ctx.Err() == nil {
			s.Log.ErrorContext(ctx, "renewing leases", "err", err)
		}
	}
}

func (s *Spoke) renewOnce(ctx context.Context) error {
	list := s.live.list()
	if len(list) == 0 {
		return nil
	}
	fences := make([]backlog.Fence, len(list))
	for i, r := range list {
		fences[i] = r.fence
	}
	from := supervisor.Boottime()
	held, err := s.backlog.Renew(ctx, fences, s.Lease)
	if err != nil {
		return err
	}
	for _, r := range list {
		if !held[r.fence] {
			s.live.lose(r)
			continue
		}
		if agent := s.live.agentOf(r); agent != nil {
			if err := agent.Renew(from.Add(s.Lease)); err != nil {
				s.Log.WarnContext(ctx, "telling a shim its new deadline", "id", r.fence.Task, "err", err)
			}
		}
	}
	return s.followPauses(ctx)
}

// reconcile takes over every attempt that the table says this spoke has and that
// is not alive here: one that an earlier process left open, or that a claim took
// whose answer was lost. Only the goroutine that claims may call it. Each has its
// slot before anything new is claimed.
func (s *Spoke) reconcile(ctx, late context.Context) error {
	open, err := s.openAttempts(ctx)
	if err != nil {
		return err
	}
	for _, o := range open {
		s.backlog.TakenOver(o.Fence.Task, o.Fence.Attempt)
		r := &run{fence: o.Fence, spec: o.Outline, outline: true, estimate: o.Outline.Estimate(), dir: s.attemptDir(o.Fence), asked: o.Asked, asker: o.Conn, state: commands.Claimed, begun: o.Started, forgot: o.Forgot, bootID: o.BootID,
			shim: supervisor.Shim{Pid: o.Shim.Pid, Start: uint64(o.Shim.Start), Cgroup: o.Shim.Cgroup}, since: supervisor.Boottime().Add(-o.Age)}
		if o.Started { // else nobody has seen its agent
			r.seen = o.Renewed
		}
		s.live.add(r)
		s.attempts.Go(func() { s.takeOver(late, r) })
	}
	if s.unsure = false; len(open) > 0 {
		if err := s.recallSteps(ctx); err != nil {
			s.Log.ErrorContext(ctx, "taking over what agents have said; the hub learns it when they say more", "err", err)
		}
		s.Log.InfoContext(ctx, "taking over open attempts", "count", len(open))
		return s.followPauses(ctx)
	}
	return nil
}

// openAttempts returns the open attempts that nobody follows here.
func (s *Spoke) openAttempts(ctx context.Context) (open []backlog.OpenAttempt, err error) {
	var followed []backlog.Fence
	for _, r := range s.live.list() {
		followed = append(followed, r.fence)
	}
	for after := ""; ; after = open[len(open)-1].Fence.Task {
		page, err := s.backlog.OpenAttempts(ctx, s.owner(), followed, after)
		if err != nil {
			return nil, err
		}
		if open = append(open, page...); len(page) < backlog.OpenPage {
			break
		}
	}
	for _, f := range followed {
		s.backlog.TakenOver(f.Task, f.Attempt)
	}
	return open, nil
}

// adopt finds out what became of an attempt: its agent, or its exit with nothing
// of it left running. What cannot be found out yet is tried again: until then
// the attempt keeps its slot, unless nothing of it lives, and its task is not claimed again.
func (s *Spoke) adopt(ctx context.Context, r *run) (*supervisor.Agent, *supervisor.Exit) {
	_, await := s.awaiting(ctx, r)
	defer s.live.awaitsNoMore(r)
	for began := time.Now(); ; {
		agent, exit, err := s.adoptOnce(ctx, r)
		if err == nil {
			s.live.remain(r, nil)
			return agent, exit
		}
		if left, ok := errors.AsType[*supervisor.Incomplete](err); ok {
			s.live.remain(r, left.Survivors)
		}
		if hostfault.Is(err) && !hostfault.NoRoom(err) && time.Since(began) > s.left.patience() && s.isEnded(ctx, r) {
			if err = s.endLeft(r); err == nil {
				return nil, &supervisor.Exit{Outcome: supervisor.Lost, Code: -1, Reason: "a disk does not say how it ended", EndedAt: time.Now().UTC()}
			}
		}
		s.Log.ErrorContext(ctx, "taking over an attempt; it will be tried again", "id", r.fence.Task, "err", err)
		if supervisor.IsUnrecorded(err) {
			await()
		}
		if !r.rest(ctx, min(5*time.Second, s.left.patience())) {
			return nil, nil
		}
	}
}

func (s *Spoke) adoptOnce(ctx context.Context, r *run) (*supervisor.Agent, *supervisor.Exit, error) {
	_, killed, err := s.backlog.PendingKill(ctx, r.fence.Task)
	if err != nil {
		return nil, nil, err
	}
	known, hidden, err := s.leftOf(r)
	if err == nil {
		err = s.idle(hidden) // before anything says that it is over
	}
	if err != nil {
		return nil, nil, err
	}
	timeout := s.Policy.Now().Timeout(r.spec.Timeout())
	known.Timeout, known.OutputCap, known.Began, known.Killed = timeout, s.outputCap(), r.begun, killed || r.forgot
	known.Over = timeout > 0 && (r.forgot || r.since != 0 && supervisor.Boottime() >= r.since.Add(timeout))
	known.Found = r.found && r.fence.Attempt > 1 // an earlier attempt of the task may have made it
	agent, exit, err := supervisor.Adopt(ctx, r.control(), known)
	if agent != nil && hidden != nil { // its shim has started meanwhile
		return nil, nil, errors.Join(hidden, agent.Close())
	}
	if agent != nil {
		r.user, r.former = known.User, known.Former
		s.isolates.Adopted(r.user, r.former)
	}
	return agent, exit, err
}
