package supervisor

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
)

const (
	maxGaps = 8       // of a stream; a shim makes two at most
	maxPid  = 1 << 22 // of Linux
)

var (
	signalForm = regexp.MustCompile(`^(SIG[A-Z0-9]{1,12})?$`)
	failedForm = regexp.MustCompile(`^[a-z_]{0,32}$`)
	digestForm = regexp.MustCompile(`^([0-9a-f]{64})?$`)
	outcomes   = []Outcome{Exited, Signalled, TimedOut, LeaseExpired, Killed, Limited, Stopped, StartFailed, NeverStarted, Lost}
)

// check refuses what no shim says. Record and socket can be an agent's work, so
// whatever has passed can be stored and sent. The errors quote nothing of it.
func check(e *Exit) error {
	number := func(n int64) bool { return 0 <= n && n < attempt.MaxNumber }
	switch {
	case !slices.Contains(outcomes, e.Outcome):
		return attempt.Spoilt("an exit has an outcome that there is not")
	case !isText(e.Reason) || !isText(e.Level) || !isText(e.Unlimited):
		return attempt.Spoilt("a text of an exit holds a NUL")
	case e.Code < -1 || e.Code > 255:
		return spoilt("an exit code of %d", e.Code)
	case !plausibleBreach(e.Breach), e.Outcome == Limited && e.Breach == (attempt.Breach{}):
		return attempt.Spoilt("an exit has a limit that there is not")
	case !signalForm.MatchString(e.Signal):
		return attempt.Spoilt("an exit has a signal that there is not")
	case !failedForm.MatchString(string(e.Failed)):
		return attempt.Spoilt("an exit has a reason of a start that there is not")
	case !number(e.OOMKills) || !number(e.Refused) || !number(e.MaxRSS) || !number(int64(e.ReapedTotal)) || e.CPU < 0:
		return attempt.Spoilt("a number of an exit is negative or too large")
	case len(e.Reaped) > attempt.MaxReaped || slices.ContainsFunc(e.Reaped, func(p Process) bool { return !plausible(p) }):
		return spoilt("an exit names %d processes that were ended, or one that cannot be", len(e.Reaped))
	}
	if err := checkSurvivors(e.Survivors); err != nil {
		return err
	}
	for _, o := range []Output{e.Stdout, e.Stderr} {
		if !number(o.Bytes) || !number(o.Dropped) || !number(o.Size) || !digestForm.MatchString(o.SHA256) || len(o.Gaps) > maxGaps {
			return spoilt("an output of an exit cannot be: %d bytes, %d in the file, %d gaps", o.Bytes, o.Size, len(o.Gaps))
		}
		for _, g := range o.Gaps {
			if g.From < 0 || g.To < g.From || g.To > o.Bytes || g.At < 0 || g.At > o.Size {
				return spoilt("an output of an exit has a gap from %d to %d of %d bytes", g.From, g.To, o.Bytes)
			}
		}
	}
	return nil
}

// plausibleBreach is none, or one of a limit that there is.
func plausibleBreach(b attempt.Breach) bool {
	return b == (attempt.Breach{}) || slices.Contains(attempt.LimitNames, b.Limit) && slices.Contains(attempt.Units, b.Unit) &&
		0 <= b.Allowed && b.Allowed < attempt.MaxNumber && 0 <= b.Measured && b.Measured < attempt.MaxNumber
}

func checkSurvivors(list []Survivor) error {
	odd := func(s Survivor) bool {
		return !plausible(Process{Pid: s.Pid, Command: s.Command}) || len(s.State) > 8 || len(s.Wchan) > 256 || strings.ContainsRune(s.State+s.Wchan, 0)
	}
	if len(list) > attempt.MaxSurvivors || slices.ContainsFunc(list, odd) {
		return spoilt("a shim names %d processes that do not end, or one that cannot be", len(list))
	}
	return nil
}

// plausible names are those of the kernel: 64 bytes at most, each of which JSON
// may have replaced by a character of three.
func plausible(p Process) bool {
	return p.Pid > 0 && p.Pid <= maxPid && len(p.Command) <= 3*64 && isText(p.Command)
}

func spoilt(format string, args ...any) error { return attempt.Spoilt(fmt.Sprintf(format, args...)) }
