package shim

import (
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
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
	until     attempt.Instant // when the phase is over, or the next kill is due
	killFrom  attempt.Instant // when the first KILL was sent
	pause     time.Duration
	clean     bool // the agent ended by itself, and nothing was signalled
	childless bool // no descendant is left, and none can come

	cause
	status   syscall.WaitStatus
	statusOK bool
}

// A cause is what ended an attempt, or began to.
type cause struct {
	outcome attempt.Outcome
	reason  string
	breach  attempt.Breach // zero = no limit
}

// reportSurvivors tells the spokes, and leaves a provisional record in case
// the shim is killed too.
func (s *shim) reportSurvivors() {
	left, err := s.tree.Survivors()
	if err != nil || len(left) == 0 {
		return // not known, or ended just now: the next round or event says it
	}
	s.survivors = left
	e := s.describe()
	e.Survivors = left
	s.tell(e)
	_ = attempt.WriteRecord(".", e) // a second best: the spokes know already
}

// describe is the exit as far as it is known.
func (s *shim) describe() attempt.Exit {
	e := attempt.Exit{
		Outcome: s.end.outcome, Reason: s.end.reason, Code: -1, Breach: s.end.breach, Level: s.run.Level, Unlimited: s.run.Unlimited,
		StartedAt: s.run.StartedAt, EndedAt: time.Now().UTC(),
	}
	if s.end.statusOK && s.end.status.Exited() {
		e.Code = s.end.status.ExitStatus()
	}
	if s.end.statusOK && s.end.status.Signaled() {
		e.Signal = signalName(s.end.status.Signal())
	}
	if s.Limits != (attempt.Limits{}) {
		e.OOMKills, e.Refused = s.group.Count("memory.events", "oom_kill"), s.group.Count("pids.events", "max")
		e.Breach = heldByKernel(e, s.Limits, s.group.Number("memory.peak"), s.group.Number("pids.peak"))
	}
	if e.Breach == (attempt.Breach{}) {
		e.Breach = crowded(e, s.mostProcesses(), s.crowd.Load())
	}
	if e.Outcome == attempt.Signalled && e.Signal == "SIGKILL" && e.OOMKills > 0 {
		e.Reason = "the kernel ended it: the tree is limited to " + strconv.FormatInt(s.Limits.Memory, 10) + " bytes of memory"
	}
	e.Reaped, e.ReapedTotal = s.tree.Reaped(s.survivors)
	return e
}

// heldByKernel is the limit that the kernel has held an agent to which failed: it ends
// processes, or starts none, and what the agent makes of that is its exit code. The peaks are
// the kernel's too, 0 where it keeps none.
func heldByKernel(e attempt.Exit, l attempt.Limits, memoryPeak, pidsPeak int64) attempt.Breach {
	switch failed := failed(e); {
	case e.Outcome == attempt.Signalled && e.Signal == "SIGXFSZ" && l.FileSize > 0:
		return attempt.Breach{Limit: attempt.DiskLimit, Unit: attempt.Bytes, Allowed: l.FileSize, Measured: l.FileSize}
	case failed && e.OOMKills > 0:
		return attempt.Breach{Limit: attempt.OOMKilled, Unit: attempt.Bytes, Allowed: l.Memory, Measured: max(l.Memory, memoryPeak)}
	case failed && e.Refused > 0:
		return attempt.Breach{Limit: attempt.ProcessLimit, Unit: attempt.Processes, Allowed: l.Pids, Measured: max(l.Pids, pidsPeak)}
	}
	return e.Breach
}

// failed reports whether an agent failed by itself.
func failed(e attempt.Exit) bool {
	return e.Outcome == attempt.Exited && e.Code != 0 || e.Outcome == attempt.Signalled
}

// crowded is the limit of processes that the kernel keeps by a user of the agent's own, where the
// agent was seen at it and then failed.
func crowded(e attempt.Exit, most, seen int64) attempt.Breach {
	if most == 0 || seen < most || !failed(e) {
		return attempt.Breach{}
	}
	return attempt.Breach{Limit: attempt.ProcessLimit, Unit: attempt.Processes, Allowed: most, Measured: seen}
}

// result closes the outputs of a tree that is gone and completes the exit. From here on
// nobody is told of survivors.
func (s *shim) result() attempt.Exit {
	s.mu.Lock()
	s.survivors, s.told = nil, nil
	s.mu.Unlock()
	s.out.cut()
	s.err.cut()
	s.captures.Wait()
	e := s.describe()
	e.Stdout, e.Stderr = s.out.finish(), s.err.finish()
	if e.Breach.Limit == attempt.OutputLimit { // what came until the end counts, as in the streams
		e.Breach.Measured = max(s.out.written, s.err.written)
	}
	var used syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_CHILDREN, &used) == nil {
		e.MaxRSS = used.Maxrss << 10
		e.CPU = time.Duration(used.Utime.Nano() + used.Stime.Nano())
	}
	return e
}

// leave tells the exit to whoever listens, records it and lets go of
// everything. A spoke that hears it stores it in its database; the record is
// for the case that none does, and a full disk must not delay the others.
func (s *shim) leave(e attempt.Exit) error {
	_ = s.group.Remove() // an empty group left behind does no harm
	s.tell(e)
	err := attempt.WriteRecord(".", e)
	for i := 0; err != nil && i < recordRetries; i++ {
		if _, gone := os.Stat(attempt.SpecFile); gone != nil {
			err = nil // the directory was removed: nobody wants the record
			break
		}
		time.Sleep(500 * time.Millisecond)
		err = attempt.WriteRecord(".", e)
	}
	close(s.ending)
	_ = s.socket.Close()
	_ = os.Remove(attempt.SocketFile)
	_ = s.alarm.close()
	s.hangUp()
	s.readers.Wait()
	s.others.Wait()
	return err
}
