package attempt

import (
	"strconv"
	"time"
)

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
	Limited      Outcome = "limited"       // ended by the shim at the limit that Breach names
	Stopped      Outcome = "stopped"       // ended by the shim because it received TERM, as at the shutdown of the host
	StartFailed  Outcome = "start_failed"  // the agent could not be executed
	NeverStarted Outcome = "never_started" // no shim got as far as the agent, and none will
	Lost         Outcome = "lost"          // the shim is gone without a record; how the agent ended is unknown
)

// An Exit is how an attempt ended. Nothing of it runs any more.
type Exit struct {
	Outcome     Outcome       `json:"outcome"`
	Reason      string        `json:"reason,omitempty"`       // the kill's reason, or what is known of a failure
	Failed      Reason        `json:"failed,omitempty"`       // why the agent could not be executed, of StartFailed; empty = not known
	Code        int           `json:"code"`                   // the agent's exit code; -1 when there is none
	Signal      string        `json:"signal,omitempty"`       // the signal that ended the agent, as SIGTERM
	StartedAt   time.Time     `json:"started_at,omitzero"`    // zero when unknown
	EndedAt     time.Time     `json:"ended_at,omitzero"`      // when the tree was proven gone
	Breach      Breach        `json:"breach,omitzero"`        // the limit that ended it, or that the kernel held an agent to which then failed
	Level       string        `json:"level,omitempty"`        // the kill level in use, see supervisor.Level
	Unlimited   string        `json:"unlimited,omitempty"`    // which limits did not hold and why, empty when all did
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

// Limited says in words what the limits of the attempt did, and what they could
// not; empty when there is nothing to say.
func (e Exit) Limited() string {
	said := ""
	add := func(what string) {
		if said != "" {
			said += "; "
		}
		said += what
	}
	if e.OOMKills > 0 {
		add("the kernel ended " + strconv.FormatInt(e.OOMKills, 10) + " processes at the limit of memory")
	}
	if e.Refused > 0 {
		add("a process or thread could not be started " + strconv.FormatInt(e.Refused, 10) + " times at the limit of processes")
	}
	if e.Unlimited != "" {
		add(e.Unlimited)
	}
	return said
}

// What an exit may hold at most.
const (
	MaxReaped    = 256     // processes named in it
	MaxSurvivors = 64      // the same of those that do not end
	MaxNumber    = 1 << 53 // exclusive: what JSON carries exactly
)

// NoteRoom is more than all the lines have that stand in a file for what is missing.
const NoteRoom = 1 << 10

// Note is the line that stands in the file for what is missing.
func (g Gap) Note() []byte {
	b := strconv.AppendInt([]byte("\n["), g.To-g.From, 10)
	b = strconv.AppendInt(append(b, " bytes dropped: "...), g.From, 10)
	b = strconv.AppendInt(append(b, " to "...), g.To-1, 10)
	return append(b, " of what was written]\n"...)
}
