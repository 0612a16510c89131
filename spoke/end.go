package spoke

import (
	"cmp"
	"context"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// outputCap is how much of each stream the policy in force keeps; 0 = the default.
func (s *Spoke) outputCap() int64 { return s.Policy.Now().Limits.Kept() }

// ended records an attempt's end with what its supervisor saw.
func (s *Spoke) ended(ctx context.Context, r *run, x supervisor.Exit) {
	if x.Damage != nil {
		s.Log.WarnContext(ctx, "the files of an attempt were changed", "id", r.fence.Task, "attempt", r.fence.Attempt, "what", x.Damage)
	}
	stdout, stderr, err := s.lastOutput(ctx, r, x)
	if err != nil {
		return // the next process finds the exit record
	}
	e := backlog.End{Outcome: outcomeOf(x), Exit: commands.Exit{Code: x.Code, Signal: x.Signal, Limits: commands.Clean(x.Limited(), 1000)}, Stdout: stdout, Stderr: stderr,
		Word: s.wordOf(ctx, r)}
	if e.Outcome == commands.AttemptFailed && x.Outcome == supervisor.Exited {
		switch met, err := s.metLimit(ctx, r, e); {
		case err != nil:
			return // the next process finds the exit record
		case met:
			e.Outcome = commands.Parked
		}
	}
	if x.Outcome != supervisor.NeverStarted && x.Outcome != supervisor.StartFailed {
		if err := s.addWork(ctx, r, r.placedAt(), &e); err != nil {
			return // the next process finds the exit record
		}
	}
	e.Exit.Breach, e.Why = breachOf(x)
	s.endedByOverrun(ctx, r, x.Reason, &e)
	e.Isolation, r.ran = r.level, x.StartedAt
	if x.Damage == nil {
		e.At = x.EndedAt
	}
	switch x.Outcome {
	case supervisor.Lost, supervisor.NeverStarted, supervisor.StartFailed, supervisor.Signalled, supervisor.Stopped, supervisor.LeaseExpired:
		e.Exit.Error = commands.Clean(x.Reason, 1000)
	}
	for _, p := range x.Reaped {
		e.Reaped = append(e.Reaped, commands.Process{Pid: p.Pid, Command: commands.Clean(p.Command, 64)})
	}
	s.finish(ctx, r, r.fence, e)
}

// cutWord is what an agent has said of its end, without its data and artifacts where the message has no room for them beside
// its output.
func cutWord(f backlog.Fence, e backlog.End) *commands.Word {
	w := e.Word
	if w == nil || w.Data == "" && w.Artifacts == nil || checkEnd(f, e) == nil {
		return w
	}
	return &commands.Word{Report: commands.Report{As: w.As, Text: w.Text, Cut: true, Final: w.Final}}
}

// finish writes the end. When the fence no longer holds, a kill may have taken
// it: then the end is the kill's, written with the kill's fence.
func (s *Spoke) finish(ctx context.Context, r *run, f backlog.Fence, e backlog.End) {
	if w := cutWord(f, e); w != e.Word {
		e.Word = w
		s.Log.WarnContext(ctx, "the result of an agent is too large with its data and its artifacts; it is told without", "id", f.Task, "attempt", f.Attempt)
	}
	if err := checkEnd(f, e); err != nil { // a defect: what was seen is less than that it is over
		s.Log.ErrorContext(ctx, "what was seen of an attempt cannot be told; only its end is", "id", f.Task, "attempt", f.Attempt, "err", err)
		e = backlog.End{Outcome: e.Outcome, Why: e.Why, Policy: e.Policy, At: e.At, Exit: commands.Exit{Code: -1, Error: "how it ended cannot be told"}}
	}
	seen := e
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		e.Fence = f
		held, err := s.recordEnd(ctx, r, e)
		if err == nil && !held {
			var k backlog.KillRun
			var killed bool
			if k, killed, err = s.backlog.PendingKill(ctx, f.Task); err == nil && killed && k.Fence != f && k.Fence.Attempt == f.Attempt {
				f, e.Outcome = k.Fence, outcomeUnder(k, seen)
				continue
			}
		}
		if err == nil {
			r.over = true
			s.sayEnd(ctx, r, e, held)
			if held {
				s.noteCollected(ctx, r, e)
			}
			if e.Bundle != nil {
				s.transfers.Look()
			}
			return
		}
		if ctx.Err() != nil {
			return // the next process finds the exit record
		}
		s.Log.ErrorContext(ctx, "recording the end of an attempt; it will be tried again", "id", f.Task, "err", err)
		if !r.rest(ctx, pause) {
			return
		}
	}
}

// outcomeUnder is the outcome of an attempt that ended as e says and whose fence k has taken.
func outcomeUnder(k backlog.KillRun, e backlog.End) commands.Outcome {
	if k.Cancel && endedWell(e) {
		return commands.Succeeded
	}
	return commands.AttemptKilled
}

// endedWell reports whether an agent that is cancelled has completed all the same: it ended
// with exit code 0 in the time that it was given.
func endedWell(e backlog.End) bool {
	return e.Exit.Code == 0 && e.Exit.Signal == "" && (e.Outcome == commands.Succeeded || e.Outcome == commands.AttemptKilled)
}

// checkEnd makes sure that the result can be sent and that the hub takes it: it has no other, and
// one that cannot be sealed would stop all that are recorded with it.
func checkEnd(f backlog.Fence, e backlog.End) error {
	m := backlog.Moved{Task: f.Task, Attempt: f.Attempt, State: commands.Failed, End: &e}
	_, err := commands.BodyToSend(m.Result())
	return err
}

// recordEnd writes the end. What the attempt has written is remembered before: after
// a crash in between, somebody still looks for it.
func (s *Spoke) recordEnd(ctx context.Context, r *run, e backlog.End) (held bool, err error) {
	if r.asked.Command != "" && r.mine.Load() {
		if err := s.output.Keep(ctx, r.fence); err != nil {
			return false, err
		}
	}
	held, err = s.progress.Submit(ctx, backlog.Progress{Start: under(r.start, e.Fence), End: &e, Conn: r.asker})
	if err != nil || !held { // where a kill has taken the fence it is recorded once more, with the start
		return held, err
	}
	if start := cmp.Or(s.starts.took(r.fence), r.start); start != nil && !r.before {
		s.sayStart(ctx, r, start)
	}
	return true, nil
}
