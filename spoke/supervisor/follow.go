package supervisor

import (
	"context"
	"errors"
	"io/fs"
	"syscall"
	"time"

	"github.com/spawnmesh/spawnmesh/spoke/hostfault"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor/tree"
)

// follow reads what the shim reports until the attempt is over.
func (a *Agent) follow(ctx context.Context) {
	defer close(a.following)
	defer a.leave()
	if a.overdue != nil {
		defer a.overdue.Stop()
	}
	for {
		r, err := a.w.ReceiveReport()
		if err != nil {
			if !a.reconnect(ctx) {
				return
			}
			continue
		}
		if r.Exit == nil {
			if r.Running != nil {
				a.turn(r.Running.Pause)
			}
			continue
		}
		exit, err := parseExit(r.Exit)
		switch {
		case err != nil: // it is no shim
			_ = a.shim.Kill()
			_ = a.w.Close()
		case len(exit.Survivors) > 0:
			a.setStuck(exit.Survivors)
		default:
			a.finish(*exit)
			return
		}
	}
}

// reconnect goes on after the connection broke. It returns false when there
// is nothing more to follow: nothing of the attempt is left, or Close was
// called.
func (a *Agent) reconnect(ctx context.Context) bool {
	var since time.Time
	for pause := time.Duration(0); ctx.Err() == nil; {
		exit, err := a.settle(ctx)
		if exit == nil {
			exit = a.unread(err, &since)
		}
		if exit != nil {
			a.finish(*exit)
			return false
		}
		pause = pauseAfter(err, pause)
		if left, ok := errors.AsType[*Incomplete](err); ok {
			a.setStuck(left.Survivors)
		} else if w, shim, run, err := call(ctx, a.dir, a.saved); err == nil {
			_ = shim.Release()
			a.turn(run.Pause)
			return a.replaceConn(ctx, w)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	_ = a.shim.Release()
	return false
}

// pauseAfter is how long to wait before the next look whether an attempt is over, after one that ended with err and the pause before that.
// Each looks at all processes of this host: where only its files keep the end from being proven they become as rare as kills.
func pauseAfter(err error, before time.Duration) time.Duration {
	most := time.Second
	if _, ok := errors.AsType[*Incomplete](err); ok {
		return attempt.KillRetry
	}
	if IsUnrecorded(err) {
		most = attempt.KillRetry
	}
	return min(max(2*before, 20*time.Millisecond), most)
}

// recordPatience is how long the files of an attempt whose kill was ordered may keep its end from being proven.
var recordPatience = time.Minute // tests have less of it

// unread is the exit of an attempt that is to end, and of which nothing lives, where a disk keeps its record from being read or written, and has
// since; nil = it is looked for again.
func (a *Agent) unread(err error, since *time.Time) *Exit {
	if !IsUnrecorded(err) || hostfault.NoRoom(err) {
		*since = time.Time{}
		return nil
	}
	if since.IsZero() {
		*since = time.Now()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.killed || time.Since(*since) < recordPatience {
		return nil
	}
	return &Exit{Outcome: Lost, Code: -1, Reason: "the shim ended, and a disk keeps its record from being read", EndedAt: time.Now().UTC(),
		StartedAt: a.run.StartedAt, Level: a.run.Level, Unlimited: a.run.Unlimited}
}

// endRemoved ends what is left of an attempt whose directory somebody has removed, and with it the way to the shim.
func endRemoved(saved savedSpec) (Exit, error) {
	e := Exit{Outcome: Lost, Code: -1, Reason: "the attempt directory was removed", EndedAt: time.Now().UTC()}
	err := clearRemains(saved, &e)
	return e, err
}

// settle returns the exit once the shim is gone, which its lock shows or the kernel,
// and nothing that it left behind is alive. An error means that this is not
// proven; without exit and error the shim is alive. Where a fault of this host keeps the lock from being looked at
// what a dead shim left behind is ended all the same.
func (a *Agent) settle(ctx context.Context) (*Exit, error) {
	lock, err := attempt.TakeLock(a.dir)
	removed := errors.Is(err, fs.ErrNotExist)
	if lock == nil && !removed && !errors.Is(err, attempt.ErrSpoilt) && !a.shimDead() {
		return nil, err
	}
	_ = a.shim.Kill() // it lives only if its agent replaced the lock
	saved := a.saved
	saved.seen = a.witness()
	var e Exit
	if removed {
		e, err = endRemoved(saved)
	} else {
		e, err = conclude(ctx, a.dir, saved, lock, err)
	}
	if err != nil {
		return nil, err
	}
	if e.StartedAt.IsZero() {
		e.StartedAt, e.Level, e.Unlimited = a.run.StartedAt, a.run.Level, a.run.Unlimited
	}
	return &e, nil
}

// witness is what is known of the attempt here once its shim was seen to be dead. Only
// of our own child the kernel says how it ended.
func (a *Agent) witness() witness {
	a.mu.Lock()
	w := witness{began: true, killed: a.killed || a.saved.seen.killed, over: a.saved.Timeout > 0 && Boottime() >= a.run.Begun.Add(a.saved.Timeout+a.run.Pause.Total(Boottime()))}
	a.mu.Unlock()
	if a.child {
		if a.state == nil {
			a.state, _ = a.shim.Wait()
		}
		w.whole = endedByItself(a.state)
		w.broken = !w.whole
	}
	return w
}

// shimDead reports whether the shim has ended, whoever has its lock.
func (a *Agent) shimDead() bool {
	if a.shim.Signal(syscall.Signal(0)) != nil {
		return true
	}
	p, err := tree.ReadProcess(a.run.Shim) // ended, and not waited for yet
	return err == nil && p.Gone()
}

// replaceConn puts a new connection in place, unless Close came first.
func (a *Agent) replaceConn(ctx context.Context, w *attempt.Conn) bool {
	a.sending.Lock()
	defer a.sending.Unlock()
	if ctx.Err() != nil {
		_ = w.Close()
		_ = a.shim.Release()
		return false
	}
	a.w = w
	return true
}

// finish publishes the exit first, and then waits for the end of the shim,
// which is still busy with the record.
func (a *Agent) finish(e Exit) {
	a.exit = e
	close(a.done)
	if a.child {
		_, _ = a.shim.Wait()
	} else {
		_, _ = a.w.ReceiveReport() // it says nothing more but hangs up
		_ = a.shim.Release()
	}
	_ = a.w.Close()
}

// stuckNow returns the channel that is closed when survivors are reported next.
func (a *Agent) stuckNow() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.stuck
}

func (a *Agent) setStuck(s []Survivor) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.survivors = s
	close(a.stuck)
	a.stuck = make(chan struct{})
}
