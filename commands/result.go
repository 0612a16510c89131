package commands

import "fmt"

// Result says how a task ended.
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
	StartedAt int64     `json:"started_at,omitempty"` // ms since 1970, the spoke's clock
	EndedAt   int64     `json:"ended_at"`
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

// MaxTail is the limit of [Output.Tail] in bytes.
const MaxTail = 4 << 10

// Sentence says in one line how the task ended, for people.
func (b *Result) Sentence() string {
	switch {
	case b.State == Completed:
		return "completed"
	case b.Reason == KillRequested:
		return "killed"
	case b.State == Cancelled && b.Reason == Operator:
		return "killed by the host of the spoke"
	case b.Reason == CommandExpired:
		return "expired before it was started"
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
