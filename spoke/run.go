package spoke

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/crash"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// run starts a claimed attempt and follows it to its end. It is the one owner
// of the attempt in this process. The order matters for a crash: the attempt is
// in the database before its shim starts, so a restarted spoke looks for it; the
// shim holds its lock before the agent starts, so what it finds is certain.
func (s *Spoke) run(ctx context.Context, r *run, deadline supervisor.Instant) {
	defer s.work.Send()
	defer s.leaveOrRemove(r)
	rules := s.Policy.Now() // the same from here to the start
	if refused, ok := judgeAgain(rules, r); !ok {
		s.finish(ctx, r, r.fence, refused)
		return
	}
	if r.spec.Runtime == commands.RuntimeNoop {
		s.runNothing(ctx, r)
		return
	}
	crash.Point("starting an agent")
	agent, err := s.startAgent(ctx, r, rules, deadline)
	if begun, ok := errors.AsType[*supervisor.BegunError](err); ok {
		s.proveStart(ctx, r, 0)
		s.ended(ctx, r, begun.Exit)
		return
	}
	if _, ok := errors.AsType[*supervisor.Incomplete](err); ok {
		s.takeOver(ctx, r) // some of it is alive: the slot stays taken
		return
	}
	if err != nil {
		s.finish(ctx, r, r.fence, couldNotStart(err))
		return
	}
	s.live.running(r, agent)
	crash.Point("started an agent")
	s.proveStart(ctx, r, agent.Pid()) // a fence that no longer holds ends the agent below
	s.attend(ctx, r, agent)
}

// runNothing is the whole life of an agent that starts no process.
func (s *Spoke) runNothing(ctx context.Context, r *run) {
	if s.proveStart(ctx, r, 0) {
		s.finish(ctx, r, r.fence, backlog.End{Outcome: commands.Succeeded, Exit: commands.Exit{}})
	}
}

// takeOver follows an attempt that an earlier process started, or records what
// became of it.
func (s *Spoke) takeOver(ctx context.Context, r *run) {
	defer s.work.Send()
	defer s.leaveOrRemove(r)
	recallPolicy(r)
	r.before = true
	if r.spec.Runtime == commands.RuntimeNoop {
		s.runNothing(ctx, r)
		return
	}
	from := supervisor.Boottime()
	agent, exit := s.adopt(ctx, r)
	if agent == nil && exit == nil {
		return
	}
	if agent == nil {
		if !s.recalled(ctx, r) {
			return
		}
		if exit.Outcome == supervisor.NeverStarted && r.begun {
			exit.Outcome, exit.Reason = supervisor.Lost, "it had started, and nothing of it is left here: was a backup restored?"
		}
		if !exit.StartedAt.IsZero() {
			s.proveStart(ctx, r, 0)
		}
		s.ended(ctx, r, *exit)
		return
	}
	s.live.running(r, agent)
	held, err := s.backlog.Renew(ctx, []backlog.Fence{r.fence}, s.Lease)
	if err == nil && held[r.fence] {
		err = agent.Renew(from.Add(s.Lease))
	}
	if err != nil {
		s.Log.WarnContext(ctx, "renewing the lease of an adopted agent", "id", r.fence.Task, "err", err)
	}
	s.proveStart(ctx, r, agent.Pid())
	if k, ok, err := s.backlog.PendingKill(ctx, r.fence.Task); err == nil && ok {
		s.live.kill(k)
	}
	s.attend(ctx, r, agent)
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
	s.live.remove(r)
}

func (s *Spoke) startAgent(ctx context.Context, r *run, rules *policy.Policy, deadline supervisor.Instant) (*supervisor.Agent, error) {
	work := filepath.Join(r.dir, "work")
	if err := os.MkdirAll(work, 0o700); err != nil {
		return nil, fmt.Errorf("making the work directory: %w", err)
	}
	if err := os.WriteFile(policyNote(r), []byte(r.policy), 0o600); err != nil {
		return nil, fmt.Errorf("noting the policy of an attempt: %w", err)
	}
	if r.spec.Dir != "" {
		work = r.spec.Dir
	}
	command := rules.Exec(&r.spec)
	command.Dir, command.TempDir = work, filepath.Join(r.dir, "work")
	command.IDs = map[string]string{"SPAWNMESH_TASK": r.fence.Task, "SPAWNMESH_ATTEMPT": strconv.Itoa(r.fence.Attempt)}
	spec, err := command.Spec()
	if err != nil {
		return nil, err
	}
	spec.Marker = s.marker(r.fence)
	spec.Timeout, spec.Deadline, spec.OutputCap = rules.Timeout(r.spec.Timeout()), deadline, rules.Limits.Output
	spec.Limits = supervisor.Limits{Memory: rules.Memory(0), Pids: int64(rules.Pids(0))}
	return supervisor.Start(ctx, r.dir, spec)
}

// proveStart records that the agent runs, and reports whether the fence held.
func (s *Spoke) proveStart(ctx context.Context, r *run, pid int) bool {
	held, err := s.progress.Submit(ctx, backlog.Progress{Start: &backlog.Start{Fence: r.fence, Pid: pid, BootID: s.bootID, Policy: r.policy}})
	if err != nil {
		s.Log.ErrorContext(ctx, "recording a start", "id", r.fence.Task, "err", err)
		return true // the end will be recorded with the same fence, or not at all
	}
	switch {
	case !held:
		s.live.lose(r)
	case r.before:
		s.Log.InfoContext(ctx, "agent goes on", "id", r.fence.Task, "attempt", r.fence.Attempt, "pid", pid)
	default:
		s.Log.InfoContext(ctx, "agent started", "id", r.fence.Task, "attempt", r.fence.Attempt, "pid", pid)
	}
	s.board.Wake()
	return held
}

// attend waits for the agent's end, and ends it when a kill comes or when the
// fence no longer holds. Kills run beside it: a later one hastens an earlier
// one, and a stop is heard; what this process leaves undone the shim finishes.
func (s *Spoke) attend(ctx context.Context, r *run, agent *supervisor.Agent) {
	var kills sync.WaitGroup
	defer kills.Wait()
	here, leave := context.WithCancel(ctx)
	defer leave()
	lost := r.lost
	for {
		select {
		case <-agent.Done():
			crash.Point("saw an agent end")
			s.ended(ctx, r, agent.Exit())
			return
		case <-r.leave:
			return
		case k := <-r.kills:
			kills.Go(func() { s.kill(here, r, agent, "killed by order", k.Grace) })
		case <-lost:
			lost = nil
			kills.Go(func() {
				grace := time.Duration(0)
				if k, ok, err := s.backlog.PendingKill(here, r.fence.Task); err == nil && ok {
					grace = k.Grace
				}
				s.kill(here, r, agent, "the lease was lost", grace)
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

// ended records an attempt's end with what its supervisor saw.
func (s *Spoke) ended(ctx context.Context, r *run, x supervisor.Exit) {
	if x.Damage != nil {
		s.Log.WarnContext(ctx, "the files of an attempt were changed", "id", r.fence.Task, "attempt", r.fence.Attempt, "what", x.Damage)
	}
	e := backlog.End{Outcome: outcomeOf(x), Exit: commands.Exit{Code: x.Code, Signal: x.Signal, Limits: plain(x.Limited(), 1000)},
		Stdout: describeOutput(r.dir, supervisor.Stdout, x.Stdout), Stderr: describeOutput(r.dir, supervisor.Stderr, x.Stderr)}
	switch x.Outcome {
	case supervisor.Lost, supervisor.StartFailed, supervisor.Signalled, supervisor.Stopped, supervisor.LeaseExpired:
		e.Exit.Error = plain(x.Reason, 1000)
	}
	for _, p := range x.Reaped {
		e.Reaped = append(e.Reaped, commands.Process{Pid: p.Pid, Command: plain(p.Command, 64)})
	}
	s.finish(ctx, r, r.fence, e)
}

// finish writes the end. When the fence no longer holds, a kill may have taken
// it: then the end is the kill's, written with the kill's fence.
func (s *Spoke) finish(ctx context.Context, r *run, f backlog.Fence, e backlog.End) {
	if err := checkEnd(f, e); err != nil { // a defect: what was seen is less than that it is over
		s.Log.ErrorContext(ctx, "what was seen of an attempt cannot be told; only its end is", "id", f.Task, "attempt", f.Attempt, "err", err)
		e = backlog.End{Outcome: e.Outcome, Why: e.Why, Exit: commands.Exit{Code: -1, Error: "how it ended cannot be told"}}
	}
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		e.Fence = f
		held, err := s.recordEnd(ctx, r, e)
		if err == nil && !held {
			var k backlog.KillRun
			var killed bool
			if k, killed, err = s.backlog.PendingKill(ctx, f.Task); err == nil && killed && k.Fence != f && k.Fence.Attempt == f.Attempt {
				f, e.Outcome = k.Fence, commands.AttemptKilled
				continue
			}
		}
		if err == nil {
			s.sayEnd(ctx, e, held)
			s.board.Wake()
			return
		}
		if ctx.Err() != nil {
			return // the next process finds the exit record
		}
		s.Log.ErrorContext(ctx, "recording the end of an attempt; it will be tried again", "id", f.Task, "err", err)
		select {
		case <-ctx.Done():
			return
		case <-r.leave:
			return
		case <-time.After(pause):
		}
	}
}

// check makes sure that the hub takes the result: it has no other.
func checkEnd(f backlog.Fence, e backlog.End) error {
	m := backlog.Moved{Task: f.Task, Attempt: f.Attempt, State: commands.Failed, End: &e}
	return m.Result().Validate()
}

// recordEnd writes the end. What the attempt has written is remembered before: after
// a crash in between, somebody still looks for it.
func (s *Spoke) recordEnd(ctx context.Context, r *run, e backlog.End) (held bool, err error) {
	if r.asked.Command != "" {
		if err := s.output.Keep(ctx, r.fence); err != nil {
			return false, err
		}
	}
	return s.progress.Submit(ctx, backlog.Progress{End: &e})
}

// sayEnd logs the end of an attempt: never what it ran or wrote.
func (s *Spoke) sayEnd(ctx context.Context, e backlog.End, held bool) {
	if !held {
		s.Log.WarnContext(ctx, "agent ended after it had lost its lease; its end does not count", "id", e.Fence.Task, "attempt", e.Fence.Attempt, "outcome", e.Outcome)
		return
	}
	s.Log.InfoContext(ctx, "agent ended", "id", e.Fence.Task, "attempt", e.Fence.Attempt, "outcome", e.Outcome, "code", e.Exit.Code, "signal", e.Exit.Signal)
}

func couldNotStart(err error) backlog.End {
	e := backlog.End{Outcome: commands.CouldNotStart, Exit: commands.Exit{Code: -1, Error: plain(err.Error(), 1000)}}
	if x, ok := errors.AsType[*supervisor.StartError](err); ok {
		switch x.Reason {
		case supervisor.NoResources, supervisor.HostFault, supervisor.LeaseOver:
			e.Outcome = commands.Released // it can pass by itself
		}
	}
	return e
}

func outcomeOf(x supervisor.Exit) commands.Outcome {
	switch x.Outcome {
	case supervisor.Exited:
		if x.Code == 0 {
			return commands.Succeeded
		}
		return commands.AttemptFailed
	case supervisor.TimedOut:
		return commands.TimedOut
	case supervisor.Killed:
		return commands.AttemptKilled
	case supervisor.StartFailed:
		return commands.CouldNotStart
	case supervisor.Signalled:
		return commands.AttemptFailed
	case supervisor.NeverStarted:
		return commands.Released
	}
	return commands.Interrupted
}

// describeOutput describes a stream, with its last bytes as text that may be put into a
// message: valid UTF-8 and nothing that stands for bytes that were not.
func describeOutput(dir string, stream supervisor.Stream, o supervisor.Output) commands.Output {
	out := commands.Output{Bytes: o.Bytes, Dropped: o.Dropped, Cut: o.Cut, Size: o.Size, SHA256: o.SHA256}
	for _, g := range o.Gaps {
		out.Gaps = append(out.Gaps, commands.Gap{From: g.From, To: g.To, At: g.At})
	}
	if p, err := supervisor.Read(dir, stream, max(0, o.Size-commands.MaxTail), commands.MaxTail); err == nil {
		out.Tail = plain(string(p.Data), commands.MaxTail)
	}
	return out
}

// plain makes a text of bytes that an agent chose: what a message or a database
// would refuse becomes a question mark.
func plain(s string, limit int) string {
	return clip(strings.Map(func(r rune) rune {
		if r == 0 || r == utf8.RuneError {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(s, "?")), limit)
}

// clip shortens s to limit bytes without cutting a character in two.
func clip(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "")
}
