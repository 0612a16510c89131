package transport

import (
	"cmp"
	"context"
	"sync"
	"time"
)

// A reserve leaves a part of the queues of commands, which share their bytes, to what starts no work: a hub can kill what it can no
// longer spawn, whoever has filled them.
type reserve struct {
	mu    sync.Mutex // guards the rest
	at    time.Time  // when the stream was looked at last
	bytes int64      // in it then, with what was sent since that starts work
}

// lookEvery is how seldom the stream is looked at.
const lookEvery = 200 * time.Millisecond

// bytesOfCommands is how much all commands may have that wait.
func (h *Hub) bytesOfCommands() int64 { return cmp.Or(h.CommandBytes, 256<<20) }

// fits reports whether a command of n bytes that starts work leaves a sixteenth of the queues to the rest, and counts it then. While
// that cannot be told the server decides.
func (h *Hub) fits(ctx context.Context, n int64) bool {
	h.reserve.mu.Lock()
	defer h.reserve.mu.Unlock()
	if l := h.main.get(); l != nil && time.Since(h.reserve.at) > lookEvery {
		ctx, done := context.WithTimeout(ctx, callTimeout)
		defer done()
		s, err := l.js.Stream(ctx, streamCommands)
		if h.reserve.at = time.Now(); err != nil { // the next command of the list does not wait for it again
			return true
		}
		h.reserve.bytes = int64(s.CachedInfo().State.Bytes)
	}
	if h.reserve.bytes+n > h.bytesOfCommands()/16*15 {
		return false
	}
	h.reserve.bytes += n
	return true
}
