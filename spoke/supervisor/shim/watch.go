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
	// lookShare bounds what looks cost: one part of this of a processor.
	lookShare = 50
)

// looks are the limits that are held by looking at the tree, for want of a kernel that does.
type looks struct {
	memory, pids bool
}

// watchTree looks at the tree where a limit needs it. Without one there is nothing to pay.
func (s *shim) watchTree() {
	switch {
	case s.looks.memory || s.looks.pids:
		s.others.Go(func() { s.watch(fastLook, s.lookAtTree) })
	case s.Limits.CPU > 0:
		s.others.Go(func() { s.watch(slowLook, s.lookAtTree) })
	}
}

// watch looks again and again until the shim leaves, and tells the first breach.
func (s *shim) watch(every time.Duration, look func() attempt.Breach) {
	for pause := every; ; {
		select {
		case <-s.ending:
			return
		case <-time.After(pause):
		}
		began := time.Now()
		if b := look(); b != (attempt.Breach{}) {
			s.breach(b)
			return
		}
		pause = max(every, lookShare*time.Since(began))
	}
}

// breach tells the main goroutine of a limit that was missed. The first one counts.
func (s *shim) breach(b attempt.Breach) {
	select {
	case s.breached <- b:
	default:
	}
}

// lookAtTree finds every process that the agent has begun, whatever its user, group or
// session: we are their subreaper.
func (s *shim) lookAtTree() attempt.Breach {
	taken, err := tree.Measure(os.Getpid())
	if err != nil {
		return attempt.Breach{}
	}
	if n := int64(taken.Threads); s.looks.pids && n > s.Limits.Pids {
		return attempt.Breach{Limit: attempt.ProcessLimit, Unit: attempt.Processes, Allowed: s.Limits.Pids, Measured: n}
	}
	if s.looks.memory && taken.RSS > s.Limits.Memory {
		if n := taken.Memory(); n > s.Limits.Memory {
			return attempt.Breach{Limit: attempt.OOMKilled, Unit: attempt.Bytes, Allowed: s.Limits.Memory, Measured: n}
		}
	}
	used := max(taken.CPU, time.Duration(s.group.Count("cpu.stat", "usage_usec"))*time.Microsecond)
	if s.Limits.CPU > 0 && used > s.Limits.CPU {
		return attempt.Breach{Limit: attempt.CPULimit, Unit: attempt.Milliseconds, Allowed: s.Limits.CPU.Milliseconds(), Measured: used.Milliseconds()}
	}
	return attempt.Breach{}
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
		case m.Limit == tree.PidsLimit:
			s.looks.pids = true
			add(&measured, m)
		default:
			add(&unlimited, m)
		}
	}
	if measured != "" {
		words = "limits measured every " + fastLook.String() + " and not held by the kernel: " + measured
	}
	if unlimited != "" && words != "" {
		words += "; "
	}
	if unlimited != "" {
		words += "limits not enforced: " + unlimited
	}
	return words
}
