package spoke

import (
	"context"
	"errors"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/spoke/hostfault"
	"github.com/spawnmesh/spawnmesh/spoke/runtime"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// withoutPath is why nothing was started, or could be judged, without the path that it is about: the log names nothing of an order.
func withoutPath(err error) string {
	if x, ok := errors.AsType[*supervisor.StartError](err); ok {
		return x.Text
	}
	return err.Error()
}

// notStarted ends an attempt whose agent was not started.
func (s *Spoke) notStarted(ctx context.Context, r *run, err error) {
	e := couldNotStart(err)
	if e.Outcome == commands.Released {
		s.Log.WarnContext(ctx, "an agent could not be started, by a fault of this host", "id", r.fence.Task, "attempt", r.fence.Attempt, "err", withoutPath(err))
	}
	s.finish(ctx, r, r.fence, e)
}

// couldNotStart is the end of an attempt whose agent did not start. Only what would be so the next time ends its task: whatever else kept it
// from starting, as the database or the disk, may pass by itself.
func couldNotStart(err error) backlog.End {
	e := backlog.End{Outcome: commands.Released, Exit: commands.Exit{Code: -1, Error: commands.Clean(err.Error(), 1000)}}
	if lasting(err) {
		e.Outcome = commands.CouldNotStart
	}
	return e
}

// lasting reports whether a start has failed by the order itself, or by a program or a directory that is not as it has to be.
func lasting(err error) bool {
	if _, ok := errors.AsType[*runtime.Refusal](err); ok {
		return true
	}
	x, ok := errors.AsType[*supervisor.StartError](err)
	return ok && !x.Reason.Passes()
}

// tryLater is the exit code of an agent that has met a limit of somebody else's, as of the provider of its model:
// EX_TEMPFAIL of sysexits.h.
const tryLater = 75

func outcomeOf(x supervisor.Exit) commands.Outcome {
	switch x.Outcome {
	case supervisor.Exited:
		switch x.Code {
		case 0:
			return commands.Succeeded
		case tryLater:
			return commands.Parked
		}
		return commands.AttemptFailed
	case supervisor.TimedOut:
		return commands.TimedOut
	case supervisor.Killed:
		return commands.AttemptKilled
	case supervisor.StartFailed:
		if x.Failed.Passes() {
			return commands.Released
		}
		return commands.CouldNotStart
	case supervisor.Signalled, supervisor.Limited:
		return commands.AttemptFailed
	case supervisor.NeverStarted:
		return commands.Released
	}
	return commands.Interrupted
}

// breachOf is the limit that ended an attempt, nil when none did, and the reason of a task
// that has failed by it.
func breachOf(x supervisor.Exit) (*commands.Breach, commands.Reason) {
	b := x.Breach
	if b == (supervisor.Breach{}) {
		return nil, commands.NoReason
	}
	told := &commands.Breach{Limit: commands.Reason(b.Limit), Unit: string(b.Unit), Allowed: b.Allowed, Measured: b.Measured}
	if outcomeOf(x) != commands.AttemptFailed {
		return told, commands.NoReason
	}
	return told, told.Limit
}

// lastOutput describes what an attempt has written: what it has written last decides what its end is. A fault of this host is tried again,
// until the attempt is left. A disk has a while to mend; then, and where a kill decides what the end is, the end is told without.
func (s *Spoke) lastOutput(ctx context.Context, r *run, x supervisor.Exit) (stdout, stderr commands.Output, err error) {
	for began, pause := time.Now(), 100*time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		var fault error
		stdout, err = describeOutput(r.control(), supervisor.Stdout, x.Stdout, s.outputCap())
		stderr, fault = describeOutput(r.control(), supervisor.Stderr, x.Stderr, s.outputCap())
		if err = errors.Join(err, fault); err == nil {
			return stdout, stderr, nil
		}
		if !hostfault.NoRoom(err) && time.Since(began) > s.left.patience() {
			s.Log.WarnContext(ctx, "what an attempt has written last cannot be read, by a fault of this host; its end is told without", "id", r.fence.Task, "attempt", r.fence.Attempt, "err", err)
			return stdout, stderr, nil
		}
		s.Log.ErrorContext(ctx, "recording the end of an attempt; it will be tried again", "id", r.fence.Task, "attempt", r.fence.Attempt, "err", err)
		select {
		case <-r.lost:
			return stdout, stderr, nil
		default:
		}
		if !r.rest(ctx, pause) {
			return stdout, stderr, err
		}
	}
}

// describeOutput describes a stream, with its last bytes as text that may be put into a
// message: valid UTF-8 and nothing that stands for bytes that were not. The error is a fault of this host.
func describeOutput(dir string, stream supervisor.Stream, o supervisor.Output, outputCap int64) (commands.Output, error) {
	out := commands.Output{Bytes: o.Bytes, Dropped: o.Dropped, Cut: o.Cut, Size: o.Size, SHA256: o.SHA256}
	for _, g := range o.Gaps {
		out.Gaps = append(out.Gaps, commands.Gap{From: g.From, To: g.To, At: g.At})
	}
	if supervisor.Empty(dir, stream) {
		return out, nil
	}
	p, err := supervisor.Read(dir, stream, max(0, o.Size-commands.MaxTail), commands.MaxTail, outputCap)
	if hostfault.Is(err) {
		return out, err
	}
	if err == nil {
		out.Tail = commands.Clean(string(p.Data), commands.MaxTail)
	}
	return out, nil
}
