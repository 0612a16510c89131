package supervisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

// killPatience is how long after the grace a kill has to succeed before the
// survivors are reported; a shim that says nothing for shimPatience longer is
// killed itself.
const (
	killPatience = 5 * time.Second
	shimPatience = 5 * time.Second
	maxGrace     = 24 * time.Hour
)

// An Agent is a running agent with a live shim.
type Agent struct {
	dir   string
	att   attempt
	w     *wire
	shim  *os.Process // by pidfd, so never another process
	child bool        // ours to wait for
	run   running

	sending   sync.Mutex         // one line at a time
	done      chan struct{}      // closed when exit is set
	following chan struct{}      // closed when the goroutine has ended
	leave     context.CancelFunc // ends the goroutine although the shim lives
	exit      Exit               // written before done is closed

	mu        sync.Mutex
	stuck     chan struct{} // closed while there are survivors
	survivors []Survivor
}

// newAgent takes over the wire and the process, and follows the shim.
func newAgent(ctx context.Context, dir string, att attempt, w *wire, shim *os.Process, child bool, run running) *Agent {
	// The agent outlives the call that started or adopted it.
	ctx, leave := context.WithCancel(context.WithoutCancel(ctx))
	a := &Agent{
		dir: dir, att: att, w: w, shim: shim, child: child, run: run, leave: leave,
		done: make(chan struct{}), following: make(chan struct{}), stuck: make(chan struct{}),
	}
	go a.follow(ctx)
	return a
}

// Pid returns the process id of the agent, for people to look at.
func (a *Agent) Pid() int { return a.run.Pid }

// StartedAt returns when the agent was executed, by the wall clock.
func (a *Agent) StartedAt() time.Time { return a.run.StartedAt }

// Level returns the kill level in use, see the function [Level].
func (a *Agent) Level() string { return a.run.Level }

// Marker returns the attempt's marker.
func (a *Agent) Marker() string { return a.att.Marker }

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
// that the deadline must be taken as not moved.
func (a *Agent) Renew(deadline Instant) error {
	if err := a.send(request{Renew: deadline}); err != nil {
		return fmt.Errorf("renewing the lease of attempt %s: %w", a.att.Marker, err)
	}
	return nil
}

// Kill ends the tree: TERM, then KILL when the grace is over (at once when it
// is 0 or less, after a day at the latest). A second call can only make it faster. It returns nil when
// the tree is proven gone, an [*Incomplete] when some of it does not end, and
// the error of ctx when that ends first; the kill then goes on. An attempt
// that is over already is killed with success, a closed Agent with an error.
//
// A shim that does not answer within grace + 10 s is killed itself, its agent
// dies with it, and the attempt is lost.
func (a *Agent) Kill(ctx context.Context, reason string, grace time.Duration) error {
	grace = min(max(grace, 0), maxGrace)
	a.wake()
	// Without the shim listening the timer below finds out.
	_ = a.send(request{Kill: &killOrder{Reason: reason, Grace: grace}})

	silence := time.NewTimer(grace + killPatience + shimPatience)
	defer silence.Stop()
	again := time.NewTicker(time.Second)
	defer again.Stop()
	stuck := a.stuckNow()
	for {
		select {
		case <-a.done:
			return a.killed()
		case <-stuck:
			a.mu.Lock()
			defer a.mu.Unlock()
			return &Incomplete{Survivors: a.survivors}
		case <-again.C:
			a.wake()
		case <-silence.C:
			_ = a.shim.Kill() // follow ends what it leaves behind
		case <-a.following:
			return a.killed()
		case <-ctx.Done():
			return fmt.Errorf("waiting for the end of attempt %s: %w", a.att.Marker, ctx.Err())
		}
	}
}

// wake undoes what an agent can do to its shim, which has the same user: stop
// it, so that it would hear nothing.
func (a *Agent) wake() { _ = a.shim.Signal(syscall.SIGCONT) }

// killed is the answer to a kill once nothing is followed any more.
func (a *Agent) killed() error {
	select {
	case <-a.done:
	default:
		return fmt.Errorf("killing attempt %s: this handle was closed; adopt the attempt first", a.att.Marker)
	}
	if !a.exit.Clean() {
		return &Incomplete{Survivors: a.exit.Survivors}
	}
	return nil
}

// Close lets go of the agent and leaves it running, for a later process to
// adopt; it is meant for the end of this one, which no longer reaps the shim.
// Of an attempt that is over it waits for the shim to have written its record.
func (a *Agent) Close() error {
	select {
	case <-a.done:
		<-a.following
		return nil
	default:
	}
	a.leave()
	a.sending.Lock()
	err := a.w.close()
	a.sending.Unlock()
	<-a.following
	if errors.Is(err, net.ErrClosed) {
		return nil // it was over just before
	}
	return err
}

// send writes a whole line or hangs up: after half a line nothing that
// follows would be understood.
func (a *Agent) send(r request) error {
	a.sending.Lock()
	defer a.sending.Unlock()
	err := a.w.send(r)
	if err != nil {
		_ = a.w.close() // follow calls again
	}
	return err
}

// follow reads what the shim reports until the attempt is over.
func (a *Agent) follow(ctx context.Context) {
	defer close(a.following)
	defer a.leave()
	for {
		var r report
		err := a.w.receive(&r)
		switch {
		case err != nil:
			if !a.reconnect(ctx) {
				return
			}
		case r.Exit != nil:
			a.finish(*r.Exit)
			return
		case r.Survivors != nil:
			a.setStuck(r.Survivors)
		}
	}
}

// reconnect goes on after the connection broke. It returns false when there
// is nothing more to follow: the shim is gone, which only a free lock shows,
// or Close was called.
func (a *Agent) reconnect(ctx context.Context) bool {
	for ctx.Err() == nil {
		lock, err := takeLock(a.dir)
		if lock != nil {
			e, err := resolve(a.dir, a.att)
			a.shimGone(e, errors.Join(err, lock.Close()))
			return false
		}
		if errors.Is(err, fs.ErrNotExist) {
			// Somebody removed the directory, and with it the way to the shim.
			_ = a.shim.Kill()
			e := Exit{Outcome: Lost, Code: -1, Reason: "the attempt directory was removed"}
			err = clearRemains(a.dir, a.att, &e)
			a.shimGone(e, err)
			return false
		}
		if w, shim, _, err := call(ctx, a.dir, a.att.Token); err == nil {
			_ = shim.Release()
			return a.rewire(ctx, w)
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
	_ = a.shim.Release()
	return false
}

// rewire puts a new connection in place, unless Close came first.
func (a *Agent) rewire(ctx context.Context, w *wire) bool {
	a.sending.Lock()
	defer a.sending.Unlock()
	if ctx.Err() != nil {
		_ = w.close()
		_ = a.shim.Release()
		return false
	}
	a.w = w
	return true
}

// shimGone publishes the exit of an attempt whose shim is dead.
func (a *Agent) shimGone(e Exit, err error) {
	if err != nil {
		e.Outcome, e.Reason = cmp.Or(e.Outcome, Lost), strings.TrimPrefix(e.Reason+"; "+err.Error(), "; ")
	}
	if e.StartedAt.IsZero() {
		e.StartedAt = a.run.StartedAt
	}
	a.finish(e)
}

// finish publishes the exit first, and then waits for the end of the shim,
// which is still busy with the record.
func (a *Agent) finish(e Exit) {
	a.exit = e
	close(a.done)
	if a.child {
		_, _ = a.shim.Wait()
	} else {
		_ = a.w.receive(new(report)) // it says nothing more but hangs up
		_ = a.shim.Release()
	}
	_ = a.w.close()
}

// stuckNow returns the channel that is closed when survivors are reported.
func (a *Agent) stuckNow() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.stuck
}

func (a *Agent) setStuck(s []Survivor) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.survivors == nil {
		close(a.stuck)
	}
	a.survivors = s
}
