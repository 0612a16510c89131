package commands

import (
	"encoding/json"
	"fmt"
	"regexp"
)

// Result says how a task ended, or what an attempt has delivered for review.
type Result struct {
	Task      string    `json:"task"`
	State     State     `json:"state"`
	Reason    Reason    `json:"reason,omitempty"`
	Attempt   int       `json:"attempt"`
	Outcome   Outcome   `json:"outcome,omitempty"`
	Exit      Exit      `json:"exit"`
	Summary   string    `json:"summary,omitempty"`
	Stdout    Output    `json:"stdout"`
	Stderr    Output    `json:"stderr"`
	Reaped    []Process `json:"reaped,omitempty"`
	Survivors []Process `json:"survivors,omitempty"`
	Kill      string    `json:"kill,omitempty"`      // the order that ended it: of several the one whose grace was over first
	Policy    string    `json:"policy,omitempty"`    // version of the spoke's policy that refused it at the start, or that was asked there when no agent.started says so
	Isolation string    `json:"isolation,omitempty"` // what the last agent was confined by, one of [IsolationLevels]; "" = none was started, or it is not known
	// What the agent itself has said: of its end, as JSON for who reads the result, and of files that it has left.
	Reported  *Report    `json:"reported,omitempty"`
	Data      string     `json:"data,omitempty"`
	Artifacts []Artifact `json:"artifacts,omitempty"`
	// What it has left in its working tree: as commits, and which files stay on the host of its spoke since they are in none.
	Bundle    *Bundle `json:"bundle,omitempty"`
	Kept      string  `json:"kept,omitempty"`
	StartedAt int64   `json:"started_at,omitempty"` // ms since 1970, the spoke's clock
	EndedAt   int64   `json:"ended_at"`
}

// ReadResult reads the result that was stored of a task, false when there is none.
func ReadResult(raw []byte) (r Result, ok bool) {
	if raw == nil {
		return r, false
	}
	err := json.Unmarshal(raw, &r) // this instance wrote it
	return r, err == nil
}

// ExitCode returns how the process of the last attempt ended, nil when there was none.
func (r Result) ExitCode() *int {
	if r.Exit.Code < 0 || r.Outcome == "" {
		return nil
	}
	return &r.Exit.Code
}

// An Output describes one output stream of an agent: its size and digest, and
// its last bytes as text. The whole of it stays with the spoke.
type Output struct {
	Bytes   int64  `json:"bytes"`             // written by the agent
	Dropped int64  `json:"dropped,omitempty"` // of these, not kept
	Gaps    []Gap  `json:"gaps,omitempty"`    // where these were
	Cut     bool   `json:"cut,omitempty"`     // its keeper was killed: the agent may have written more than Bytes
	Size    int64  `json:"size,omitempty"`    // of what was kept, with the lines that stand for what was not
	SHA256  string `json:"sha256,omitempty"`  // of what was kept
	Tail    string `json:"tail,omitempty"`
}

// A Gap is a part of a stream that was not kept: the bytes From to To-1 of it.
type Gap struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
	At   int64 `json:"at"` // where it would be in what was kept; a line there says so, if there was room for it
}

// MaxGaps is the limit of [Output.Gaps].
const MaxGaps = 16

// End is what makes r the same end of its task as another result: not how it is told.
func (r *Result) End() string {
	return fmt.Sprintf("%s %s %d %s %d", r.State, r.Reason, r.Attempt, r.Outcome, r.Exit.Code)
}

// MaxTail is the limit of [Output.Tail] in bytes.
const MaxTail = 4 << 10

// MaxProcesses is the limit of [Result.Reaped] and of [Result.Survivors].
const MaxProcesses = 256

var digestForm = regexp.MustCompile(`^([0-9a-f]{64})?$`)

func (x Exit) check() error {
	if x.Code < -1 || x.Code > 255 {
		return Refuse(Validation, "exit code %d is outside -1..255", x.Code)
	}
	for _, t := range []struct{ name, text string }{{"the error of an exit", x.Error}, {"the limits of an exit", x.Limits}} {
		if err := checkText(t.name, t.text, 4096); err != nil {
			return err
		}
	}
	if x.Breach != nil {
		if err := x.Breach.check(); err != nil {
			return err
		}
	}
	return checkText("the signal of an exit", x.Signal, 64)
}

func checkOutput(o Output) error {
	if len(o.Tail) > MaxTail {
		return Refuse(Validation, "an output tail is above %d bytes", MaxTail)
	}
	if !digestForm.MatchString(o.SHA256) {
		return Refuse(Validation, "the digest of an output is not 64 hexadecimal digits")
	}
	for _, n := range []int64{o.Bytes, o.Dropped, o.Size} {
		if n < 0 || n > maxNumber {
			return Refuse(Validation, "a number of bytes of an output is outside 0..%d", int64(maxNumber))
		}
	}
	return checkText("an output tail", o.Tail, MaxTail)
}

func checkProcesses(list []Process) error {
	if len(list) > MaxProcesses {
		return Refuse(Validation, "%d processes are named, limit %d", len(list), MaxProcesses)
	}
	for _, p := range list {
		if p.Pid < 0 || p.Pid > maxPid {
			return Refuse(Validation, "process id %d is outside 0..%d", p.Pid, maxPid)
		}
		if err := checkText("the name of a process", p.Command, 256); err != nil {
			return err
		}
	}
	return nil
}

// Sentence says in one line how the task ended, for people.
func (b *Result) Sentence() string {
	switch {
	case b.State == Completed:
		return "completed"
	case b.Delivered():
		return string(InReview)
	case b.State == Cancelled && b.Reason == CancelRequested:
		return "cancelled"
	case b.Reason == KillRequested:
		return "killed"
	case b.State == Cancelled && b.Reason == Operator:
		return "killed by the host of the spoke"
	case b.State == Cancelled && b.Reason == LinkRevoked:
		return "ended with the connection to its hub"
	case b.Reason == CommandExpired:
		return "expired before it was started"
	case b.Exit.Breach != nil:
		return b.Exit.Breach.Sentence()
	case b.Reason == DeadlineElapsed:
		return "ended at its timeout"
	case b.Exit.Error != "":
		return b.Exit.Error
	case b.Exit.Signal != "":
		return "ended by " + b.Exit.Signal
	case b.Exit.Code > 0:
		return fmt.Sprintf("exit code %d", b.Exit.Code)
	}
	return string(b.State)
}
