// Package supervisor owns one agent's process tree from start to proof of its end.
//
// Each attempt has a directory of its own and one shim: this same binary,
// started as "_shim", in a session of its own. To import this package is enough for
// that: package shim enters before main. The shim starts the agent,
// reaps its descendants, keeps its output, ends the tree when told to, at the
// timeout or when the lease runs out, and leaves an exit record. It outlives
// the process that started it, which finds it again with [Adopt].
//
// Under failure. A shim is alive exactly while it holds the flock on the
// file "lock"; a process id alone never decides anything. [Adopt] declares an
// attempt over only with that flock in its own hand and a tombstone written
// under it, and a shim that finds the tombstone starts nothing: a shim forked
// just before its spoke died either runs and is adopted or never runs. An
// agent dies with its shim; what it leaves behind is found by cgroup and
// marker and ended before the attempt is called lost.
//
// What ends a tree: the shim is a subreaper, so every descendant becomes its
// child sooner or later, and "no child left" is the proof that the tree is
// gone. Where cgroup v2 can be used the kernel ends the whole tree in one
// step, also after the shim is dead. Without a user of its own (below) a descendant that cleared its environment,
// left its session and is in no cgroup of the attempt (at level "tree" there is
// none, and whoever may write to the groups can leave his) can outlive a shim
// that was itself killed with signal 9; nothing else can.
//
// What runs as a user of its own ([Confine]) is ended by that, in one step of the kernel's,
// and nothing of it is left. An agent that has the user of its spoke can stop or kill its
// shim and change the files of its attempt. The attempt then ends in bounded time all the same: who the
// shim is follows from what the caller knows, and files are read to a limit, after
// the tree is ended.
//
// Under concurrency. The methods of [Agent] may be called from any goroutine.
// A started or adopted agent costs its owner one goroutine and one socket
// until Done or Close.
//
// Only Linux 5.4 or later is supported, with /proc mounted.
package supervisor

import (
	"fmt"
	"time"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
	_ "github.com/spawnmesh/spawnmesh/spoke/supervisor/shim" // what this program is when it is started as a shim
)

// What an attempt is, as package attempt has it for both sides.
type (
	Spec       = attempt.Spec
	Limits     = attempt.Limits
	Counted    = attempt.Counted
	Confine    = attempt.Confine
	User       = attempt.User
	Exit       = attempt.Exit
	Outcome    = attempt.Outcome
	Breach     = attempt.Breach
	Process    = attempt.Process
	Survivor   = attempt.Survivor
	Stream     = attempt.Stream
	Output     = attempt.Output
	Gap        = attempt.Gap
	Instant    = attempt.Instant
	Reason     = attempt.Reason
	StartError = attempt.StartError
)

// MarkerName is the environment variable that marks every process of an
// attempt's tree as part of it. Only the supervisor sets it.
const MarkerName = attempt.MarkerName

// What an agent reaches that was opened for it: see [attempt.OpenedDir].
const (
	OpenedDir     = attempt.OpenedDir
	OpenedProgram = attempt.OpenedProgram
)

// The streams of an agent.
const (
	Stdout = attempt.Stdout
	Stderr = attempt.Stderr
)

// The outcomes of an attempt.
const (
	Exited       = attempt.Exited
	Signalled    = attempt.Signalled
	TimedOut     = attempt.TimedOut
	LeaseExpired = attempt.LeaseExpired
	Killed       = attempt.Killed
	Limited      = attempt.Limited
	Stopped      = attempt.Stopped
	StartFailed  = attempt.StartFailed
	NeverStarted = attempt.NeverStarted
	Lost         = attempt.Lost
)

// The reasons of a [StartError].
const (
	NotFound      = attempt.NotFound
	BadShebang    = attempt.BadShebang
	ShebangLoop   = attempt.ShebangLoop
	NotExecutable = attempt.NotExecutable
	IsDirectory   = attempt.IsDirectory
	BadFormat     = attempt.BadFormat
	BadDirectory  = attempt.BadDirectory
	TooLong       = attempt.TooLong
	BadSpec       = attempt.BadSpec
	LeaseOver     = attempt.LeaseOver
	NoResources   = attempt.NoResources
	HostFault     = attempt.HostFault
)

// Boottime returns the present instant.
func Boottime() Instant { return attempt.Boottime() }

// Slept returns how long this machine has slept since it started. Only the difference of two of them counts.
func Slept() time.Duration { return attempt.Slept() }

// Incomplete is the error of a kill that left processes alive, and of an
// adoption that found some which do not end. The attempt is not over, and its
// place stays taken. The kill is repeated every 10 seconds, by the shim or, when
// that one is dead, by the Agent; Done is closed once they are gone.
type Incomplete struct {
	Survivors []Survivor
	Former    int64 // as [Known.Former]
}

func (e *Incomplete) Error() string {
	if len(e.Survivors) == 0 {
		return "kill incomplete: it could not be proven that the tree is gone; look at it with ps"
	}
	s := e.Survivors[0]
	if e.Former != 0 {
		return fmt.Sprintf("%d processes may be of it, the first is %d (%s): they run as user %d, which its agent may have had under an earlier range, or which is another's; look whose they are, and end them if they are of an agent",
			len(e.Survivors), s.Pid, s.Command, e.Former)
	}
	return fmt.Sprintf("kill incomplete: %d processes do not end, the first is %d (%s) in state %s at %q; the kill is repeated until they do",
		len(e.Survivors), s.Pid, s.Command, s.State, s.Wchan)
}
