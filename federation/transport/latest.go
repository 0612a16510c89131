package transport

import (
	"context"
	"sync"
)

// A latest holds a value that comes and goes, and lets others wait for it.
// The zero value holds nothing.
type latest[T any] struct {
	mu      sync.Mutex
	value   *T
	closed  bool
	changed chan struct{} // made by a waiter, closed by the next change
}

func (v *latest[T]) get() *T {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.value
}

// set replaces the value and returns the one before.
func (v *latest[T]) set(value *T) (before *T) {
	return v.change(func() { v.value = value })
}

// close is for when there will be no further value: everybody who waits for
// one gets ErrClosed.
func (v *latest[T]) close() {
	v.change(func() { v.value, v.closed = nil, true })
}

func (v *latest[T]) change(how func()) (before *T) {
	v.mu.Lock()
	defer v.mu.Unlock()
	before = v.value
	how()
	if v.changed != nil {
		close(v.changed)
		v.changed = nil
	}
	return before
}

// await returns the value as soon as there is one.
func (v *latest[T]) await(ctx context.Context) (*T, error) {
	for {
		v.mu.Lock()
		value, closed := v.value, v.closed
		if v.changed == nil {
			v.changed = make(chan struct{})
		}
		changed := v.changed
		v.mu.Unlock()
		switch {
		case closed:
			return nil, ErrClosed
		case value != nil:
			return value, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
