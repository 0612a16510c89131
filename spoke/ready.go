package spoke

import "sync/atomic"

// readiness is whether a claim may find something, as far as this process knows.
type readiness struct {
	counted atomic.Int64 // tasks that stood ready at the last sweep
	more    atomic.Bool  // false only after a claim that got less than it asked for
}

// count notes what a sweep has counted, and reports whether tasks stand ready and none did before.
func (r *readiness) count(n int) (fresh bool) {
	return r.counted.Swap(int64(n)) == 0 && n > 0
}

// any reports whether tasks may stand ready.
func (r *readiness) any() bool { return r.more.Load() || r.counted.Load() > 0 }
