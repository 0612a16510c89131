package supervisor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor/tree"
)

// A shim that says nothing for shimPatience longer is
// killed itself, and has as long again to be gone.
const (
	shimPatience = 5 * time.Second
	maxGrace     = 24 * time.Hour
)

// An Agent is a running agent with a live shim.
type Agent struct {
	dir   string
	saved savedSpec
	w     *attempt.Conn
	shim  *os.Process     // by pidfd, so never another process
	child bool            // ours to wait for
	run   attempt.Running // mu guards its Pause

	sending   sync.Mutex         // one line at a time
	done      chan struct{}      // closed when exit is set
	following chan struct{}      // closed when the goroutine has ended
	leave     context.CancelFunc // ends the goroutine although the shim lives
	overdue   *time.Timer        // ends a tree that its shim does not end in time; nil without a timeout, stopped while the tree stands still
	exit      Exit               // written before done is closed
	state     *os.ProcessState   // of the shim; of the goroutine

	mu        sync.Mutex    // guards what follows
	stuck     chan struct{} // closed and made anew when survivors are reported
	survivors []Survivor    // as reported last
	killed    bool          // a kill was ordered here
	turned    chan struct{} // closed and made anew when the shim says whether the tree stands still
}

// newAgent takes over the connection and the process, and follows the shim.
func newAgent(ctx context.Context, dir string, saved savedSpec, w *attempt.Conn, shim *os.Process, child bool, run attempt.Running) *Agent {
	// The agent outlives the call that started or adopted it.
	ctx, leave := context.WithCancel(context.WithoutCancel(ctx))
	if saved.shim.Pid == 0 { // it lives, so nobody else has its pid
		if p, err := tree.ReadProcess(shim.Pid); err == nil {
			saved.shim = Shim{Pid: p.Pid, Start: p.Start, Cgroup: run.Cgroup}
		}
	}
	a := &Agent{
		dir: dir, saved: saved, w: w, shim: shim, child: child, run: run, leave: leave,
		done: make(chan struct{}), following: make(chan struct{}), stuck: make(chan struct{}), turned: make(chan struct{}),
	}
	if saved.Timeout > 0 {
		a.overdue = time.AfterFunc(maxGrace, func() { _ = a.Kill(ctx, fmt.Sprintf("its shim did not end it after %s", saved.Timeout), 0) })
		a.await()
	}
	go a.follow(ctx)
	return a
}

// await sets when the tree is ended without its shim.
func (a *Agent) await() {
	if a.run.Pause.Since != 0 {
		a.overdue.Stop()
		return
	}
	a.overdue.Reset(a.patience())
}

// patience is how long from now the shim has to end a tree that runs into its
// timeout. An agent of the same user can stop its shim again and again.
func (a *Agent) patience() time.Duration {
	due := min(a.run.Begun, Boottime()).Add(a.saved.Timeout + a.run.Pause.Stood).Add(min(a.saved.KillGrace(), maxGrace) + attempt.KillPatience + shimPatience)
	return due.Sub(Boottime())
}

// Pid returns the process id of the agent, for people to look at.
func (a *Agent) Pid() int { return a.run.Pid }

// StartedAt returns when the agent was executed, by the wall clock.
func (a *Agent) StartedAt() time.Time { return a.run.StartedAt }

// Level returns the kill level in use, see the function [Level].
func (a *Agent) Level() string { return a.run.Level }

// Unlimited says which of [Spec.Limits] do not hold here and why, as in "limits
// not enforced: no memory controller in /sys/fs/cgroup". It is empty when all do.
func (a *Agent) Unlimited() string { return a.run.Unlimited }

// Shim returns what to keep of the shim for a later [Adopt].
func (a *Agent) Shim() Shim { return a.saved.shim }

// Marker returns the attempt's marker.
func (a *Agent) Marker() string { return a.saved.Marker }

// Done is closed when the attempt is over and Exit can be read. After Close
// it may stay open for ever.
func (a *Agent) Done() <-chan struct{} { return a.done }

// Exit returns how the attempt ended. It blocks until Done is closed.
func (a *Agent) Exit() Exit {
	<-a.done
	return a.exit
}

// Renew moves the deadline of the lease forward; an earlier one than the
// present changes nothing. An error means that the shim does not listen, and
// that the deadline must be taken as not moved. An attempt that is over has none.
func (a *Agent) Renew(deadline Instant) error {
	a.wake()
	err := a.send(attempt.Request{Renew: deadline})
	if err == nil {
		return nil
	}
	select {
	case <-a.done:
		return nil
	default:
		return fmt.Errorf("renewing the lease of attempt %s: %w", a.saved.Marker, err)
	}
}

// Kill ends the tree: TERM, then KILL when the grace is over (at once when it
// is 0 or less, after a day at the latest). It may be called while a kill is
// under way, which it can only make faster. It returns nil when the tree is
// proven gone, an [*Incomplete] when some of it does not end, and the error of
// ctx when that ends first; the kill goes on after both. An attempt that is
// over already is killed with success, a closed Agent with an error.
//
// A shim that does not answer within grace + 10 s is killed itself, its agent
// dies with it, and the attempt is lost. Kill returns after grace + 20 s at
// the latest.
func (a *Agent) Kill(ctx context.Context, reason string, grace time.Duration) error {
	grace = min(max(grace, 0), maxGrace)
	a.mu.Lock()
	a.killed = true
	a.mu.Unlock()
	stuck := a.stuckNow()
	a.wake()
	// Without the shim listening the timer below finds out.
	_ = a.send(attempt.Request{Kill: &attempt.KillOrder{Reason: reason, Grace: grace}})

	silence := time.NewTimer(grace + attempt.KillPatience + shimPatience)
	defer silence.Stop()
	second := time.NewTicker(time.Second)
	defer second.Stop()
	for shot := false; ; {
		select {
		case <-a.done:
			return nil
		case <-stuck:
			return a.incomplete()
		case <-second.C:
			a.wake()
		case <-silence.C:
			if shot {
				return a.incomplete()
			}
			_ = a.shim.Kill() // follow ends what it leaves behind
			shot = true
			silence.Reset(attempt.KillPatience + shimPatience)
		case <-a.following:
			return a.unfollowed()
		case <-ctx.Done():
			return fmt.Errorf("waiting for the end of attempt %s: %w", a.saved.Marker, ctx.Err())
		}
	}
}

// wake undoes what an agent can do to its shim, which has the same user: stop
// it, so that it would hear nothing.
func (a *Agent) wake() { _ = a.shim.Signal(syscall.SIGCONT) }

// unfollowed is the answer to a kill once nothing is followed any more.
func (a *Agent) unfollowed() error {
	select {
	case <-a.done:
		return nil
	default:
		return fmt.Errorf("killing attempt %s: this handle was closed; adopt the attempt first", a.saved.Marker)
	}
}

// Survivors are the processes that did not end when they were killed last, and are killed again
// every 10 seconds. There are none once the attempt is over.
func (a *Agent) Survivors() []Survivor {
	select {
	case <-a.done:
		return nil
	default:
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.survivors
}

func (a *Agent) incomplete() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return &Incomplete{Survivors: a.survivors}
}

// Close lets go of the agent and leaves it attempt.Running, for a later process to
// adopt; it is meant for the end of this one, which no longer reaps the shim.
// Of an attempt that is over it waits for the shim to have written its record,
// for a moment at least: that of a full disk takes longer.
func (a *Agent) Close() error {
	select {
	case <-a.done:
		select {
		case <-a.following:
		case <-time.After(shimPatience):
		}
		return nil
	default:
	}
	a.leave()
	a.sending.Lock()
	err := a.w.Close()
	a.sending.Unlock()
	<-a.following
	if errors.Is(err, net.ErrClosed) {
		return nil // it was over just before
	}
	return err
}

// send writes a whole line or hangs up: after half a line nothing that
// follows would be understood.
func (a *Agent) send(r attempt.Request) error {
	a.sending.Lock()
	defer a.sending.Unlock()
	err := a.w.SendRequest(r)
	if err != nil {
		_ = a.w.Close() // follow calls again
	}
	return err
}
