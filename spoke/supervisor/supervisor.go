// Package supervisor owns one agent's process tree from start to proof of its end.
//
// Each attempt has a directory of its own and one shim: this same binary,
// started as "_shim", in a session of its own. The shim starts the agent,
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
// step, also after the shim is dead. A descendant that cleared its environment,
// left its session and is in no cgroup of the attempt (at level "tree" there is
// none, and whoever may write to the groups can leave his) can outlive a shim
// that was itself killed with signal 9; nothing else can.
//
// An agent has the user of its spoke, so it can stop or kill its shim and change
// the files of its attempt. The attempt then ends in bounded time all the same: who the
// shim is follows from what the caller knows, and files are read to a limit, after
// the tree is ended.
//
// Under concurrency. The methods of [Agent] may be called from any goroutine.
// A started or adopted agent costs its owner one goroutine and one socket
// until Done or Close.
//
// Only Linux 5.3 or later is supported, with /proc mounted.
package supervisor

import (
	"fmt"
	"time"
)

// MarkerName is the environment variable that marks every process of an
// attempt's tree as part of it. Only the supervisor sets it.
const MarkerName = "SPAWNMESH_MARKER"

// A Spec says what to run and within which bounds. It reaches the shim over a
// socket; the copy in the attempt directory leaves out the environment, which
// may hold credentials.
type Spec struct {
	// Marker names the attempt: 32 lower-case hexadecimal digits, never used
	// for another attempt. Empty = one that the directory tells.
	Marker string `json:"marker"`
	// Argv is executed without a shell; Argv[0] is an absolute path.
	Argv []string `json:"argv"`
	// Env is the complete environment as NAME=value; nothing is inherited.
	// SPAWNMESH_MARKER is added.
	Env []string `json:"env,omitempty"`
	// Dir is the agent's working directory, an absolute path.
	Dir string `json:"dir"`
	// Timeout ends the tree this long after the start, time asleep included.
	// 0 = never.
	Timeout time.Duration `json:"timeout,omitempty"`
	// Grace is how long the tree has between TERM and KILL when the shim ends
	// it by itself. 0 = 10 s.
	Grace time.Duration `json:"grace,omitempty"`
	// OutputCap is how many bytes of each output stream are kept: the first
	// half in the file as it is written, the last half added at the end.
	// 0 = 16 MiB.
	OutputCap int64 `json:"output_cap,omitempty"`
	// Limits bound what the tree takes, as far as this host can.
	Limits Limits `json:"limits,omitzero"`
	// Deadline is when the lease runs out unless Renew moves it. 0 = no lease.
	Deadline Instant `json:"deadline,omitempty"`
	// Slack is how long after the deadline a late renewal still counts.
	// 0 = 3 s.
	Slack time.Duration `json:"slack,omitempty"`
	// NoCgroup leaves cgroups alone also where they could be used.
	NoCgroup bool `json:"no_cgroup,omitempty"`
}

// An Outcome says why an attempt is over. Outcomes are stored, so none is
// ever renamed.
type Outcome string

// The outcomes of an attempt.
const (
	Exited       Outcome = "exited"        // the agent ended by itself with Code
	Signalled    Outcome = "signalled"     // a signal that was not ours ended the agent
	TimedOut     Outcome = "timeout"       // ended by the shim at Spec.Timeout
	LeaseExpired Outcome = "lease_expired" // ended by the shim: the lease was not renewed
	Killed       Outcome = "killed"        // ended by the shim on request
	Stopped      Outcome = "stopped"       // ended by the shim because it received TERM, as at the shutdown of the host
	StartFailed  Outcome = "start_failed"  // the agent could not be executed
	NeverStarted Outcome = "never_started" // no shim got as far as the agent, and none will
	Lost         Outcome = "lost"          // the shim is gone without a record; how the agent ended is unknown
)

// An Exit is how an attempt ended. Nothing of it runs any more.
type Exit struct {
	Outcome     Outcome       `json:"outcome"`
	Reason      string        `json:"reason,omitempty"`       // the kill's reason, or what is known of a failure
	Code        int           `json:"code"`                   // the agent's exit code; -1 when there is none
	Signal      string        `json:"signal,omitempty"`       // the signal that ended the agent, as SIGTERM
	StartedAt   time.Time     `json:"started_at,omitzero"`    // zero when unknown
	EndedAt     time.Time     `json:"ended_at,omitzero"`      // when the tree was proven gone
	Level       string        `json:"level,omitempty"`        // the kill level in use, see [Level]
	Unlimited   string        `json:"unlimited,omitempty"`    // which limits did not hold and why, see [Agent.Unlimited]
	OOMKills    int64         `json:"oom_kills,omitempty"`    // processes that the kernel ended at Limits.Memory
	Refused     int64         `json:"refused,omitempty"`      // times Limits.Pids kept a process or thread from being started
	Reaped      []Process     `json:"reaped,omitempty"`       // processes that were ended, at most 256 of them
	ReapedTotal int           `json:"reaped_total,omitempty"` // how many were ended in all
	Survivors   []Survivor    `json:"survivors,omitempty"`    // only in a record: the attempt is not over, these could not be ended yet
	Stdout      Output        `json:"stdout"`
	Stderr      Output        `json:"stderr"`
	MaxRSS      int64         `json:"max_rss"` // bytes, of the largest process
	CPU         time.Duration `json:"cpu"`     // user and system time of the whole tree
	Damage      error         `json:"-"`       // what was wrong with the files of the attempt: its agent can change them
}

// A Process names a process that was ended. Command is the kernel's short
// name of it: arguments may hold secrets and are never recorded.
type Process struct {
	Pid     int    `json:"pid"`
	Command string `json:"command"`
}

// A Survivor is a process that does not end although it was sent KILL.
type Survivor struct {
	Pid     int    `json:"pid"`
	Command string `json:"command"`
	State   string `json:"state"` // the letter of /proc/PID/stat, D = uninterruptible
	Wchan   string `json:"wchan"` // where in the kernel it waits; empty when hidden
}

// A Stream is one of the two an agent writes. Its name is that of its file in
// the attempt directory.
type Stream string

// The streams of an agent.
const (
	Stdout Stream = "stdout"
	Stderr Stream = "stderr"
)

// An Output describes what was kept of a stream in its file.
type Output struct {
	Bytes   int64  `json:"bytes"`             // written by the agent
	Dropped int64  `json:"dropped,omitempty"` // of these, not in the file
	Gaps    []Gap  `json:"gaps,omitempty"`    // where these would be
	Cut     bool   `json:"cut,omitempty"`     // the shim was killed: the agent may have written more than Bytes
	Size    int64  `json:"size"`              // of the file, with the lines that stand for what is missing
	SHA256  string `json:"sha256,omitempty"`  // of the file, hexadecimal
}

// A Gap is a part of a stream that is not in its file.
type Gap struct {
	From int64 `json:"from"` // the first byte of the stream that is missing, counted from 0
	To   int64 `json:"to"`   // the first one after it that is not
	At   int64 `json:"at"`   // where in the file it would be; a line there says so, if there was room for it
}

// Incomplete is the error of a kill that left processes alive, and of an
// adoption that found some which do not end. The attempt is not over, and its
// place stays taken. The kill is repeated every 10 seconds, by the shim or, when
// that one is dead, by the Agent; Done is closed once they are gone.
type Incomplete struct {
	Survivors []Survivor
}

func (e *Incomplete) Error() string {
	if len(e.Survivors) == 0 {
		return "kill incomplete: it could not be proven that the tree is gone; look at it with ps"
	}
	s := e.Survivors[0]
	return fmt.Sprintf("kill incomplete: %d processes do not end, the first is %d (%s) in state %s at %q; the kill is repeated until they do",
		len(e.Survivors), s.Pid, s.Command, s.State, s.Wchan)
}
