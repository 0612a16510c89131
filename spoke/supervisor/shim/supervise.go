package shim

import (
	"syscall"
	"time"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
)

const (
	// settleTime is how long descendants that outlive the agent may take to
	// end by themselves before they are told to.
	settleTime = 200 * time.Millisecond
	// leftoverGrace bounds their time between TERM and KILL.
	leftoverGrace = 2 * time.Second
	// hurry is how long a new request to kill survivors has to succeed before
	// they are reported again.
	hurry = time.Second
	// recordRetries bounds how long a full disk can delay the end, in halves
	// of a second.
	recordRetries = 120
)

// supervise waits for the end of the tree, or brings it about. Its one error
// is a broken clock; without one nobody would end the tree in time.
func (s *shim) supervise() (attempt.Exit, error) {
	s.end.clean = true
	gone := s.gone
	for {
		if err := s.alarm.set(s.next()); err != nil {
			return attempt.Exit{}, err
		}
		select {
		case status := <-s.mainEnded:
			s.agentEnded(status)
		case <-gone:
			if s.treeGone() {
				return s.result(), nil
			}
			gone = nil
		case r := <-s.requests:
			s.obey(r)
		case <-s.alarm.C:
			if s.due() {
				return s.result(), nil
			}
		case b := <-s.breached:
			s.stop(cause{attempt.Limited, "ended at its limit", b}, s.graceAt(b.Limit))
		case sig := <-s.signals:
			s.stop(cause{outcome: attempt.Stopped, reason: "the shim received " + sig.String()}, s.KillGrace())
		}
	}
}

// next is when something has to be done without being asked.
func (s *shim) next() attempt.Instant {
	if s.end.phase != living {
		return s.end.until
	}
	return earliest(s.timeout(), s.LeaseEnd(), s.idleEnd())
}

// timeout is when the tree has run for too long, should it run until then. While it stands still no time counts.
func (s *shim) timeout() attempt.Instant {
	if s.Timeout == 0 || s.run.Pause.Since != 0 {
		return 0
	}
	return s.run.Begun.Add(s.Timeout + s.run.Pause.Stood)
}

// agentEnded notes how. The reaper tells at once whether that was all.
func (s *shim) agentEnded(status syscall.WaitStatus) {
	s.end.status, s.end.statusOK = status, true
	if s.end.phase != living {
		return
	}
	if status != 0 {
		s.lookAtTheRest()
	}
	s.end.outcome = attempt.Exited
	if status.Signaled() {
		s.end.outcome = attempt.Signalled
	}
	s.enter(settling, settleTime)
}

// treeGone reports whether the attempt is over. An agent that ended by itself
// and left no child has no tree any more: every descendant would be a child
// of ours. Once anything was signalled the cgroup and the markers are looked
// at too, for what others may have started in the agent's name.
func (s *shim) treeGone() bool {
	select {
	case status := <-s.mainEnded: // both were ready, and this came first
		s.agentEnded(status)
	default:
	}
	s.end.childless = true
	if s.end.clean && !s.group.Populated() {
		return true
	}
	s.enter(killing, 0)
	return s.due()
}

func (s *shim) obey(r attempt.Request) {
	if r.Renew != 0 && s.Deadline != 0 {
		s.Deadline = max(s.Deadline, r.Renew)
	}
	if r.Kill != nil {
		s.stop(cause{outcome: attempt.Killed, reason: r.Kill.Reason}, r.Kill.Grace)
	}
	if r.Pause != nil && s.end.phase == living { // what ends goes on to its end
		s.pause(*r.Pause)
	}
}

// stop begins the end of the tree, or hastens it.
func (s *shim) stop(why cause, grace time.Duration) {
	switch s.end.phase {
	case living:
		if now, t := attempt.Boottime(), s.timeout(); t != 0 && now >= t { // also when a kill was read first
			why = cause{attempt.TimedOut, "still running after " + s.Timeout.String(),
				attempt.Breach{Limit: attempt.DeadlineElapsed, Unit: attempt.Milliseconds, Allowed: s.Timeout.Milliseconds(), Measured: (now.Sub(s.run.Begun) - s.run.Pause.Stood).Milliseconds()}}
		}
		s.end.cause = why
		s.ask(grace)
	case settling:
		s.ask(min(grace, leftoverGrace))
	case asking:
		s.end.until = min(s.end.until, attempt.Boottime().Add(grace))
	case killing:
		if now := attempt.Boottime(); s.end.until.Sub(now) > hurry { // between two of the rare rounds
			s.end.until, s.end.killFrom, s.end.pause = now, now.Add(hurry-attempt.KillPatience), time.Millisecond
		}
	}
}

// ask sends TERM. What cannot be asked is killed when the time comes.
func (s *shim) ask(grace time.Duration) {
	s.end.clean = false
	if grace > 0 {
		_ = s.tree.Terminate()
	}
	s.enter(asking, grace)
}

// enter begins a phase that lasts for d.
func (s *shim) enter(p phase, d time.Duration) {
	s.end.phase, s.end.until = p, attempt.Boottime().Add(d)
	if p == killing && s.end.killFrom == 0 {
		s.end.clean, s.end.killFrom, s.end.pause = false, attempt.Boottime(), time.Millisecond
	}
}

// due does what the alarm was set for and reports whether the attempt is over.
func (s *shim) due() bool {
	now := attempt.Boottime()
	if at := s.next(); at == 0 || now < at {
		return false // moved meanwhile
	}
	switch s.end.phase {
	case living:
		why := cause{outcome: attempt.LeaseExpired, reason: "the lease was not renewed"} // or it is the timeout
		if end := s.idleEnd(); end != 0 && end <= attempt.Boottime() {
			why = s.idle()
		}
		s.stop(why, s.KillGrace())
		return false
	case settling:
		s.ask(min(s.KillGrace(), leftoverGrace))
		return false
	case asking:
		s.enter(killing, 0)
	}
	return s.killRound(now)
}

// killRound kills what is left, reports whether nothing is, and sets the time
// of the next round: soon at first, and rarely once survivors are known.
func (s *shim) killRound(now attempt.Instant) bool {
	found, err := s.tree.Kill()
	if err == nil && len(found) == 0 && s.end.childless && !s.group.Populated() {
		return true
	}
	if now.Sub(s.end.killFrom) < attempt.KillPatience {
		s.end.until = now.Add(s.end.pause)
		s.end.pause = min(2*s.end.pause, 100*time.Millisecond)
		return false
	}
	s.reportSurvivors()
	s.end.until = now.Add(attempt.KillRetry)
	return false
}
