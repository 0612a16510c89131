// Package wait holds what goroutines wait for besides channels of their own: a time
// that a context can cut short, and a signal that is never lost and never blocks its
// sender.
//
// Its tests are those of federation and of spoke, which sleep and wake by it.
package wait

import (
	"context"
	"math/rand/v2"
	"time"
)

// A Signal wakes the goroutine that receives from it. Signals that were sent before it
// receives are one: whoever is woken looks at all that may have changed.
type Signal chan struct{}

// NewSignal returns a signal that was not sent.
func NewSignal() Signal { return make(Signal, 1) }

// Send never blocks.
func (s Signal) Send() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// Spread returns a time between half of d and d. Who tries again after it does not
// go on in step with somebody who began at the same time.
func Spread(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }

// For waits for d, or until ctx ends, and then returns its error.
func For(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
