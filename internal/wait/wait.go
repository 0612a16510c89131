// Package wait holds what goroutines wait for besides channels of their own: a time
// that a context can cut short, and a signal that is never lost and never blocks its
// sender.
package wait

import (
	"context"
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
