package spoke

import "sync"

// A bell wakes all who wait for something to change.
type bell struct {
	mu   sync.Mutex // guards wake
	wake chan struct{}
}

// next is closed when something has changed after the call, or may have.
func (n *bell) next() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.wake == nil {
		n.wake = make(chan struct{})
	}
	return n.wake
}

func (n *bell) tell() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.wake != nil {
		close(n.wake)
		n.wake = nil
	}
}
