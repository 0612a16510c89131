package supervisor

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// settleTime is how long descendants that outlive the agent may take to
	// end by themselves before they are told to.
	settleTime = 200 * time.Millisecond
	// leftoverGrace bounds their time between TERM and KILL.
	leftoverGrace = 2 * time.Second
	// killRetry is the pause between kills while there are survivors.
	killRetry = 10 * time.Second
	// hurry is how long a new request to kill survivors has to succeed before
	// they are reported again.
	hurry = time.Second
	// recordRetries bounds how long a full disk can delay the end, in halves
	// of a second.
	recordRetries = 120
)

// A phase is how far the end of a tree has come.
type phase int

const (
	living   phase = iota // the agent runs
	settling              // the agent has ended by itself, descendants have not
	asking                // TERM was sent
	killing               // KILL is sent until nothing is left
)

// An ending is what the main goroutine knows about the end of its tree.
type ending struct {
	phase     phase
	until     Instant // when the phase is over, or the next kill is due
	killFrom  Instant // when the first KILL was sent
	pause     time.Duration
	clean     bool // the agent ended by itself, and nothing was signalled
	childless bool // no descendant is left, and none can come

	outcome  Outcome
	reason   string
	status   unix.WaitStatus
	statusOK bool
}

// supervise waits for the end of the tree, or brings it about. Its one error
// is a broken clock; without one nobody would end the tree in time.
func (s *shim) supervise() (Exit, error) {
	s.end.clean = true
	gone := s.gone
	for {
		if err := s.alarm.set(s.next()); err != nil {
			return Exit{}, err
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
		case sig := <-s.signals:
			s.stop(Stopped, fmt.Sprintf("the shim received %s", sig), s.grace())
		}
	}
}

// next is when something has to be done without being asked.
func (s *shim) next() Instant {
	if s.end.phase != living {
		return s.end.until
	}
	return earliest(s.timeout(), s.leaseEnd())
}

func (s *shim) timeout() Instant {
	if s.Timeout == 0 {
		return 0
	}
	return s.run.Begun.Add(s.Timeout)
}

// agentEnded notes how. The reaper tells at once whether that was all.
func (s *shim) agentEnded(status unix.WaitStatus) {
	s.end.status, s.end.statusOK = status, true
	if s.end.phase != living {
		return
	}
	s.end.outcome = Exited
	if status.Signaled() {
		s.end.outcome = Signalled
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
	if s.end.clean && !s.tree.cgroup.populated() {
		return true
	}
	s.enter(killing, 0)
	return s.due()
}

func (s *shim) obey(r request) {
	if r.Renew != 0 && s.Deadline != 0 {
		s.Deadline = max(s.Deadline, r.Renew)
	}
	if r.Kill != nil {
		s.stop(Killed, r.Kill.Reason, r.Kill.Grace)
	}
}

// stop begins the end of the tree, or hastens it.
func (s *shim) stop(outcome Outcome, reason string, grace time.Duration) {
	switch s.end.phase {
	case living:
		if t := s.timeout(); t != 0 && Boottime() >= t { // also when a kill was read first
			outcome, reason = TimedOut, fmt.Sprintf("still running after %s", s.Timeout)
		}
		s.end.outcome, s.end.reason = outcome, reason
		s.ask(grace)
	case settling:
		s.ask(min(grace, leftoverGrace))
	case asking:
		s.end.until = min(s.end.until, Boottime().Add(grace))
	case killing:
		if now := Boottime(); s.end.until.Sub(now) > hurry { // between two of the rare rounds
			s.end.until, s.end.killFrom, s.end.pause = now, now.Add(hurry-killPatience), time.Millisecond
		}
	}
}

// ask sends TERM. What cannot be asked is killed when the time comes.
func (s *shim) ask(grace time.Duration) {
	s.end.clean = false
	if grace > 0 {
		_ = s.tree.terminate()
	}
	s.enter(asking, grace)
}

// enter begins a phase that lasts for d.
func (s *shim) enter(p phase, d time.Duration) {
	s.end.phase, s.end.until = p, Boottime().Add(d)
	if p == killing && s.end.killFrom == 0 {
		s.end.clean, s.end.killFrom, s.end.pause = false, Boottime(), time.Millisecond
	}
}

// due does what the alarm was set for and reports whether the attempt is over.
func (s *shim) due() bool {
	now := Boottime()
	if at := s.next(); at == 0 || now < at {
		return false // moved meanwhile
	}
	switch s.end.phase {
	case living:
		s.stop(LeaseExpired, "the lease was not renewed", s.grace()) // or it is the timeout
		return false
	case settling:
		s.ask(min(s.grace(), leftoverGrace))
		return false
	case asking:
		s.enter(killing, 0)
	}
	return s.killRound(now)
}

// killRound kills what is left, reports whether nothing is, and sets the time
// of the next round: soon at first, and rarely once survivors are known.
func (s *shim) killRound(now Instant) bool {
	found, err := s.tree.kill()
	if err == nil && len(found) == 0 && s.end.childless && !s.tree.cgroup.populated() {
		return true
	}
	if now.Sub(s.end.killFrom) < killPatience {
		s.end.until = now.Add(s.end.pause)
		s.end.pause = min(2*s.end.pause, 100*time.Millisecond)
		return false
	}
	s.reportSurvivors()
	s.end.until = now.Add(killRetry)
	return false
}

// reportSurvivors tells the spokes, and leaves a provisional record in case
// the shim is killed too.
func (s *shim) reportSurvivors() {
	left, err := s.tree.survivors()
	if err != nil || len(left) == 0 {
		return // not known, or ended just now: the next round or event says it
	}
	s.mu.Lock()
	s.survivors = left
	s.mu.Unlock()
	s.tell(report{Survivors: left})
	e := s.describe()
	e.Survivors = left
	_ = writeExit(".", e) // a second best: the spokes know already
}

// describe is the exit as far as it is known.
func (s *shim) describe() Exit {
	e := Exit{
		Outcome: s.end.outcome, Reason: s.end.reason, Code: -1, Level: s.run.Level, Unlimited: s.run.Unlimited,
		StartedAt: s.run.StartedAt, EndedAt: time.Now().UTC(),
	}
	if s.end.statusOK && s.end.status.Exited() {
		e.Code = s.end.status.ExitStatus()
	}
	if s.end.statusOK && s.end.status.Signaled() {
		e.Signal = unix.SignalName(s.end.status.Signal())
	}
	if s.Limits != (Limits{}) {
		e.OOMKills, e.Refused = s.tree.cgroup.count("memory.events", "oom_kill"), s.tree.cgroup.count("pids.events", "max")
	}
	if e.Outcome == Signalled && e.Signal == "SIGKILL" && e.OOMKills > 0 {
		e.Reason = fmt.Sprintf("the kernel ended it: the tree is limited to %d bytes of memory", s.Limits.Memory)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e.Reaped, e.ReapedTotal = s.tree.reaped(s.survivors)
	return e
}

// result closes the outputs of a tree that is gone and completes the exit.
func (s *shim) result() Exit {
	s.mu.Lock()
	s.survivors = nil
	s.mu.Unlock()
	s.out.cut()
	s.err.cut()
	s.captures.Wait()
	e := s.describe()
	e.Stdout, e.Stderr = s.out.finish(), s.err.finish()
	var used unix.Rusage
	if unix.Getrusage(unix.RUSAGE_CHILDREN, &used) == nil {
		e.MaxRSS = used.Maxrss << 10
		e.CPU = time.Duration(used.Utime.Nano() + used.Stime.Nano())
	}
	return e
}

// leave tells the exit to whoever listens, records it and lets go of
// everything. A spoke that hears it stores it in its database; the record is
// for the case that none does, and a full disk must not delay the others.
func (s *shim) leave(e Exit) error {
	_ = s.tree.cgroup.remove() // an empty group left behind does no harm
	s.mu.Lock()
	s.final = &e
	s.mu.Unlock()
	s.tell(report{Exit: &e})
	err := writeExit(".", e)
	for i := 0; err != nil && i < recordRetries; i++ {
		if _, gone := os.Stat(specFile); gone != nil {
			err = nil // the directory was removed: nobody wants the record
			break
		}
		time.Sleep(500 * time.Millisecond)
		err = writeExit(".", e)
	}
	close(s.ending)
	_ = s.listener.Close()
	_ = os.Remove(socketFile)
	_ = s.alarm.close()
	s.hangUp()
	s.readers.Wait()
	s.others.Wait()
	return err
}

// reap collects every child until none is left. As a subreaper we inherit
// each descendant whose parent ends, so none left means that none exists, and
// none can come: only the agent's tree could fork.
func (s *shim) reap() {
	defer close(s.gone)
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WALL, nil)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return // ECHILD
		case pid == s.run.Pid:
			s.mainEnded <- status
		}
	}
}
