package supervisor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
)

// A Pause says whether the tree of an agent stands still, and for how long it did.
type Pause = attempt.Pause

// Pause lets the tree stand still where it is, or go on; neither takes time from its [Spec.Timeout]. It may be called
// again, which stops what was continued by others meanwhile. It returns nil once the shim has done it, also where the
// attempt is over: see Paused for what may run all the same. A kill ends a tree that stands still.
func (a *Agent) Pause(ctx context.Context, on bool) error {
	second := time.NewTicker(time.Second)
	defer second.Stop()
	silence := time.NewTimer(attempt.KillPatience + shimPatience)
	defer silence.Stop()
	turned := a.turnedNow()
	for {
		a.wake()
		_ = a.send(attempt.Request{Pause: &on}) // one that does not listen is asked again
		select {
		case <-a.done:
			return nil
		case <-turned:
			turned = a.turnedNow()
			switch p := a.Paused(); {
			case p.Problem != "":
				return errors.New("letting attempt " + a.saved.Marker + " go on: " + p.Problem)
			case (p.Since != 0) == on:
				return nil
			}
		case <-second.C:
		case <-silence.C:
			return fmt.Errorf("pausing attempt %s: its shim does not answer", a.saved.Marker)
		case <-a.following:
			return a.unfollowed()
		case <-ctx.Done():
			return fmt.Errorf("waiting for the pause of attempt %s: %w", a.saved.Marker, ctx.Err())
		}
	}
}

// Paused says whether the tree stands still, as its shim said last.
func (a *Agent) Paused() Pause {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.run.Pause
}

func (a *Agent) turnedNow() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.turned
}

// turn notes what a shim says.
func (a *Agent) turn(p Pause) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.run.Pause = p
	if a.overdue != nil {
		a.await()
	}
	close(a.turned)
	a.turned = make(chan struct{})
}
