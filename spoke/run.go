package spoke

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/crash"
	"github.com/spawnmesh/spawnmesh/internal/metrics"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
	"github.com/spawnmesh/spawnmesh/spoke/runtime"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// run starts a claimed attempt and follows it to its end. It is the one owner
// of the attempt in this process. The order matters for a crash: the attempt is
// in the database before its shim starts, so a restarted spoke looks for it; the
// shim holds its lock before the agent starts, so what it finds is certain.
func (s *Spoke) run(ctx context.Context, r *run, deadline supervisor.Instant) {
	defer s.freed(r)
	defer s.leaveOrRemove(r)
	defer s.release(r)
	if r.fault != nil {
		s.notStarted(ctx, r, r.fault)
		return
	}
	rules := s.Policy.Now() // the same from here to the start
	env, err := s.environmentOf(r)
	if err != nil {
		s.notStarted(ctx, r, err)
		return
	}
	named := rules.OpenNamed(&r.spec)
	defer named.Close()
	if fault := faultOf(named); fault != nil {
		s.notStarted(ctx, r, fault)
		return
	}
	if refused, ok := judgeAgain(rules, r, env, named); !ok {
		s.finish(ctx, r, r.fence, refused)
		return
	}
	if r.spec.Runtime == commands.RuntimeNoop {
		s.runNothing(ctx, r)
		return
	}
	crash.Point("starting an agent")
	agent, err := s.startAgent(ctx, r, rules, env, named, deadline)
	named.Close()
	if begun, ok := errors.AsType[*supervisor.BegunError](err); ok {
		s.proveLater(ctx, r, nil, executedAt(begun.Exit))()
		s.ended(ctx, r, begun.Exit)
		return
	}
	if left, ok := errors.AsType[*supervisor.UnprovenError](err); ok {
		r.shim = left.Shim
		if r.begun = r.begun || left.Began; r.begun { // a later process knows that by the record alone
			_, _ = s.progress.Submit(ctx, backlog.Progress{Start: s.startOf(r, nil, time.Time{}), Conn: r.asker})
		}
		s.adoptAndFollow(ctx, r) // some of it may be alive: the slot stays taken
		return
	}
	if err != nil {
		s.notStarted(ctx, r, err)
		return
	}
	s.live.running(r, agent)
	crash.Point("started an agent")
	s.follow(ctx, r, agent)
}

// runNothing is the whole life of an agent that starts no process: it has started and
// ended at once.
func (s *Spoke) runNothing(ctx context.Context, r *run) {
	r.start = s.startOf(r, nil, time.Now())
	s.finish(ctx, r, r.fence, backlog.End{Outcome: commands.Succeeded, Exit: commands.Exit{}})
}

// takeOver follows an attempt that an earlier process started, or records what
// became of it.
func (s *Spoke) takeOver(ctx context.Context, r *run) {
	defer s.freed(r)
	defer s.leaveOrRemove(r)
	defer s.release(r)
	if !s.isOwn(ctx, r) {
		return
	}
	s.recallPolicy(ctx, r)
	s.adoptAndFollow(ctx, r)
}

// adoptAndFollow is takeOver of an attempt whose directory is known to be its own.
func (s *Spoke) adoptAndFollow(ctx context.Context, r *run) {
	r.before = true
	if r.spec.Runtime == commands.RuntimeNoop {
		s.runNothing(ctx, r)
		return
	}
	s.standStill(ctx, r)
	from := supervisor.Boottime()
	agent, exit := s.adopt(ctx, r)
	if agent == nil && exit == nil {
		return
	}
	if agent == nil {
		s.endTakenOver(ctx, r, exit)
		return
	}
	s.live.running(r, agent)
	defer s.reopenDoor(ctx, r, agent)()
	held, err := s.backlog.Renew(ctx, []backlog.Fence{r.fence}, s.Lease)
	if err == nil && held[r.fence] {
		err = agent.Renew(from.Add(s.Lease))
	}
	if err != nil {
		s.Log.WarnContext(ctx, "renewing the lease of an adopted agent", "id", r.fence.Task, "err", err)
	}
	if k, ok, err := s.backlog.PendingKill(ctx, r.fence.Task); err == nil && ok {
		s.live.kill(k)
	}
	s.follow(ctx, r, agent)
}

// endTakenOver records the end of an attempt that was taken over, and that has no process any more, when its hub has said what it recalls.
func (s *Spoke) endTakenOver(ctx context.Context, r *run, exit *supervisor.Exit) {
	if !s.recalled(ctx, r) {
		return
	}
	select {
	case s.live.ends <- struct{}{}:
		defer func() { <-s.live.ends }()
	case <-r.leave:
		return
	}
	s.believe(ctx, r, exit)
	if exit.Outcome == supervisor.NeverStarted && r.begun {
		exit.Outcome, exit.Reason = supervisor.Lost, "it had started, and nothing of it is left here: was a backup restored?"
	}
	if exit.Outcome == supervisor.Lost && r.found && !r.begun {
		exit.Reason = fmt.Sprintf("the directory agents/%s/%d of attempt %d is there already, and this spoke did not make it: a backup was restored, or somebody made it; nothing was started", r.fence.Task, r.fence.Attempt, r.fence.Attempt)
	}
	if exit.Outcome == supervisor.Lost && !r.seen.IsZero() {
		exit.Reason += fmt.Sprintf("; the spoke saw it last %s before it found this", commands.Lasting(max(time.Second, exit.EndedAt.Sub(r.seen).Round(time.Second))))
	}
	if !exit.StartedAt.IsZero() {
		s.proveLater(ctx, r, nil, executedAt(*exit))()
	}
	s.ended(ctx, r, *exit)
}

// leaveOrRemove takes an ended attempt out of the live ones. One that goes on
// without us stays, so that it is counted.
func (s *Spoke) leaveOrRemove(r *run) {
	select {
	case <-r.leave:
		if agent := s.live.agentOf(r); agent != nil {
			select {
			case <-agent.Done():
			default:
				return
			}
		}
	default:
	}
	s.starts.took(r.fence)
	s.live.remove(r)
}

func (s *Spoke) startAgent(ctx context.Context, r *run, rules *policy.Policy, env environment, named *policy.Named, deadline supervisor.Instant) (*supervisor.Agent, error) {
	level, err := rules.LevelFor(&r.spec)
	if err != nil {
		return nil, fmt.Errorf("confining the agent: %w", err)
	}
	r.level = level
	if err := r.makeDirs(); err != nil {
		return nil, err
	}
	if err := r.note(ownerNote, r.asker); err != nil {
		return nil, err
	}
	if err := r.note(policyNote, r.policy+" "+r.level); err != nil {
		return nil, err
	}
	own := r.own()
	if len(r.spec.Inputs) > 0 {
		if deadline, err = s.bringInputs(ctx, r); err != nil {
			return nil, err
		}
	}
	if err := env.writeFiles(own); err != nil {
		return nil, err
	}
	command := rules.ExecNamed(&r.spec, env.vars, named)
	command.Secrets = append(command.Secrets, env.secrets...)
	r.work = cmp.Or(r.spec.Dir, own.Work)
	command.Dir, command.Home, command.TempDir = r.work, own.Home, own.Temp
	timeout := rules.Timeout(r.spec.Timeout())
	if timeout > 0 {
		r.until = time.Now().Add(timeout)
	}
	command.IDs = map[string]string{runtime.TaskVariable: r.fence.Task, runtime.AttemptVariable: strconv.Itoa(r.fence.Attempt)}
	r.doorVariables(command.IDs)
	if err := errors.Join(s.handOver(ctx, r, command.IDs), s.writeGiven(ctx, r, env.prompt, command.IDs)); err != nil {
		return nil, err
	}
	command.Trace = r.trace()
	at, err := r.openWork(named)
	if err != nil {
		return nil, err
	}
	defer at.Close()
	spec, err := command.Spec()
	if err != nil {
		return nil, err
	}
	spec.Opened, spec.OpenedProgram = at.File(), named.Program.File()
	r.secrets = spec.Secrets
	spec.Marker, spec.Stdin = s.marker(r.fence), env.stdin
	spec.Timeout, spec.Deadline, spec.OutputCap = timeout, deadline, rules.Limits.Kept()
	spec.Limits = limitsOf(rules)
	if spec.Confine, err = s.confine(r, rules, named); err != nil {
		return nil, err
	}
	spec.Counted = r.counted()
	if err := errors.Join(s.giveInputs(r), env.giveFiles(own, r.user.ID)); err != nil {
		return nil, err
	}
	work, err := r.noteWork(at)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(giveTold(r), s.openDoor(r, work)); err != nil {
		return nil, err
	}
	return supervisor.Start(ctx, r.control(), spec)
}

// leaseWhy is what the record of an agent says that is ended because its fence no longer holds.
const leaseWhy = "the lease was lost"

// attend waits for the agent's end, and ends it when a kill comes or when the
// fence no longer holds. Kills run beside it: a later one hastens an earlier
// one, and a stop is heard; what this process leaves undone the shim finishes. However
// many they are, they are one kill of this agent, and counted by what it was for first.
func (s *Spoke) attend(ctx context.Context, r *run, agent *supervisor.Agent) {
	var kills sync.WaitGroup
	defer kills.Wait()
	here, leave := context.WithCancel(ctx)
	defer leave()
	pausing, end := context.WithCancel(here) // until the agent is to end: the shim lets that go on
	defer end()
	kills.Go(func() { s.attendPauses(pausing, r, agent) })
	lost, over := r.lost, r.overrun.over
	var first sync.Once
	count := func(cause string) { first.Do(func() { s.Counters.Killed(cause) }) }
	kill := func(why string, grace time.Duration) {
		end()
		s.kill(here, r, agent, why, grace)
	}
	for {
		select {
		case <-agent.Done():
			crash.Point("saw an agent end")
			s.ended(ctx, r, agent.Exit())
			return
		case <-r.leave:
			return
		case k := <-r.kills:
			count(metrics.ByOrder)
			kills.Go(func() { kill(k.Why(), k.Grace) })
		case <-over:
			over = nil
			count(metrics.ByOverrun)
			kills.Go(func() { kill(overrunWhy, overrunGrace) })
		case <-lost:
			lost = nil
			kills.Go(func() {
				why, grace, cause := leaseWhy, time.Duration(0), metrics.ByLease
				if k, ok, err := s.backlog.PendingKill(here, r.fence.Task); err == nil && ok { // a kill takes the fence
					why, grace, cause = k.Why(), k.Grace, metrics.ByOrder
				}
				count(cause)
				kill(why, grace)
			})
		}
	}
}

func (s *Spoke) kill(ctx context.Context, r *run, agent *supervisor.Agent, reason string, grace time.Duration) {
	err := agent.Kill(ctx, reason, grace)
	if _, survivors := errors.AsType[*supervisor.Incomplete](err); survivors {
		s.Log.ErrorContext(ctx, "processes survive their kill; their slot stays taken", "id", r.fence.Task, "err", err)
	} else if err != nil && ctx.Err() == nil {
		s.Log.ErrorContext(ctx, "killing an agent", "id", r.fence.Task, "err", err)
	}
}
