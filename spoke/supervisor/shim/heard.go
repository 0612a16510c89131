package shim

import (
	"sync/atomic"
	"time"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
)

// heard is when an agent has written something last. Its clock stands still while the machine
// sleeps: then nobody could.
type heard struct {
	begun time.Time
	at    atomic.Int64 // after that, in nanoseconds
}

func (h *heard) now() { h.at.Store(int64(time.Since(h.begun))) }

// listenFor takes note of what the agent writes, as far as a limit needs it.
func (s *shim) listenFor(c *capture) {
	if s.Limits.Idle == 0 && s.Limits.Written == 0 {
		return
	}
	c.heard = func(total int64) {
		s.heard.now()
		if above(total, s.Limits.Written) {
			s.breach(attempt.Breach{Limit: attempt.OutputLimit, Unit: attempt.Bytes, Allowed: s.Limits.Written, Measured: total})
		}
	}
}

// quiet is for how long the agent has written nothing.
func (s *shim) quiet() time.Duration {
	return time.Since(s.heard.begun) - time.Duration(s.heard.at.Load())
}

// idleEnd is when the agent has written nothing for too long, should it write nothing until
// then; 0 = never.
func (s *shim) idleEnd() attempt.Instant {
	if s.Limits.Idle == 0 || s.run.Pause.Since != 0 { // what stands still cannot write, and begins anew
		return 0
	}
	return attempt.Boottime().Add(s.Limits.Idle - s.quiet())
}

// idle is the end of an agent that has written nothing for too long.
func (s *shim) idle() cause {
	return cause{attempt.Limited, "no output", attempt.Breach{Limit: attempt.IdleTimeout, Unit: attempt.Milliseconds,
		Allowed: s.Limits.Idle.Milliseconds(), Measured: s.quiet().Milliseconds()}}
}
