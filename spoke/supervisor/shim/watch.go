package shim

import (
	"os"
	"time"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor/tree"
)

const (
	// fastLook is how often is looked for what can be taken quickly, slowLook for the rest.
	fastLook = 250 * time.Millisecond
	slowLook = time.Second
	// lookShare bounds what looks cost: one part this small of a processor.
	lookShare = 50
	// memorySpeed is how many bytes of memory a tree takes in a second at most.
	memorySpeed = 4 << 30
)

// looks are the limits that are held by looking at the tree, for want of a kernel that does.
type looks struct {
	memory, pids bool
	crowd        bool // of processes the kernel refuses what is more, and counts no refusals
}

// A look finds out whether a limit is missed, and when to look again.
type look func() (b attempt.Breach, again time.Duration)

// watchTree looks at the tree where a limit needs it. Without one there is nothing to pay. A shim
// leaves without waiting for a look: what an agent has open may keep it.
func (s *shim) watchTree() {
	if s.looks != (looks{}) || s.Limits.CPU > 0 {
		go s.watch(fastLook, func() (attempt.Breach, time.Duration) {
			began := time.Now()
			b, again := s.lookAtTree()
			return b, max(again, lookShare*time.Since(began))
		})
	}
}

// watch looks again and again until the shim leaves, and tells the first breach.
func (s *shim) watch(first time.Duration, look look) {
	for again := first; ; {
		select {
		case <-s.ending:
			return
		case <-time.After(again):
		}
		var b attempt.Breach
		if b, again = look(); b != (attempt.Breach{}) {
			s.breach(b)
			return
		}
	}
}

// reached is how long it takes at least to take what is left of a limit.
func reached(left, speed int64, from, to time.Duration) time.Duration {
	return min(max(time.Duration(float64(left)/float64(speed)*float64(time.Second)), from), to)
}

// breach tells the main goroutine of a limit that was missed. The first one counts.
func (s *shim) breach(b attempt.Breach) {
	select {
	case s.breached <- b:
	default:
	}
}

// lookAtTree finds every process that the agent has begun, whatever its user, group or
// session: we are their subreaper. It looks again before the rest of a limit can be taken.
func (s *shim) lookAtTree() (attempt.Breach, time.Duration) {
	again := slowLook
	if s.looks.pids || s.looks.crowd {
		again = fastLook
	}
	taken, err := tree.Measure(os.Getpid())
	if err != nil {
		return attempt.Breach{}, again
	}
	s.seen(taken.Threads)
	if n := int64(taken.Threads); s.looks.pids && n > s.Limits.Pids {
		return attempt.Breach{Limit: attempt.ProcessLimit, Unit: attempt.Processes, Allowed: s.Limits.Pids, Measured: n}, 0
	}
	if s.looks.memory {
		n := taken.RSS
		if n > s.Limits.Memory {
			n = taken.Memory()
		}
		if n > s.Limits.Memory {
			return attempt.Breach{Limit: attempt.OOMKilled, Unit: attempt.Bytes, Allowed: s.Limits.Memory, Measured: n}, 0
		}
		again = reached(s.Limits.Memory-n, memorySpeed, fastLook, again)
	}
	used := max(taken.CPU, time.Duration(s.group.Count("cpu.stat", "usage_usec"))*time.Microsecond)
	if s.Limits.CPU > 0 && used > s.Limits.CPU {
		return attempt.Breach{Limit: attempt.CPULimit, Unit: attempt.Milliseconds, Allowed: s.Limits.CPU.Milliseconds(), Measured: used.Milliseconds()}, 0
	}
	return attempt.Breach{}, again
}

// seen notes how many processes and threads the agent had at a look.
func (s *shim) seen(threads int) {
	n := int64(threads)
	for most := s.crowd.Load(); n > most && !s.crowd.CompareAndSwap(most, n); most = s.crowd.Load() {
	}
}

// lookAtTheRest counts what an agent has left that ended by itself: one that failed as it could
// start no more has the others still, and there may have been no look since.
func (s *shim) lookAtTheRest() {
	if s.mostProcesses() == 0 {
		return
	}
	if taken, err := tree.Measure(os.Getpid()); err == nil {
		s.seen(taken.Threads + 1) // and itself
	}
}

// graceAt is how long a tree may take to end by itself. What it takes meanwhile others lack, so
// there is time only where it takes no more than before.
func (s *shim) graceAt(limit attempt.LimitName) time.Duration {
	switch limit {
	case attempt.IdleTimeout, attempt.CPULimit:
		return s.KillGrace()
	}
	return 0
}

// held sorts out how the limits hold that the agent's group does not hold, and says so for
// people. Of a user of its own the kernel counts the processes in any case.
func (s *shim) held(missing []tree.Missing) (words string) {
	measured, unlimited := "", ""
	add := func(to *string, m tree.Missing) {
		if *to != "" {
			*to += "; "
		}
		*to += string(m.Limit) + ": " + m.Why
	}
	for _, m := range missing {
		switch {
		case m.Limit == tree.MemoryLimit:
			s.looks.memory = true
			add(&measured, m)
		case m.Limit == tree.PidsLimit && s.Confine.User.ID != 0:
			s.looks.crowd = true
		case m.Limit == tree.PidsLimit:
			s.looks.pids = true
			add(&measured, m)
		default:
			add(&unlimited, m)
		}
	}
	if measured != "" {
		words = "limits measured several times a second and not held by the kernel: " + measured
	}
	if unlimited != "" && words != "" {
		words += "; "
	}
	if unlimited != "" {
		words += "limits not enforced: " + unlimited
	}
	return words
}
