package commands

// Pause asks a spoke to pause a task, or to let it go on. Of two words about one task that with the higher number
// counts, in whatever order they arrive. It overtakes queues, and is remembered when it arrives before its spawn.
type Pause struct {
	Task   string `json:"task"`
	Number int64  `json:"number"`
	Paused bool   `json:"paused"` // false: it goes on
	Reason string `json:"reason,omitempty"`
}

// Kind returns [PauseKind].
func (*Pause) Kind() Kind { return PauseKind }

// TaskID returns the task to be paused, or to go on.
func (p *Pause) TaskID() string { return p.Task }

// Word is what p asks for.
func (p *Pause) Word() string {
	if p.Paused {
		return "pause"
	}
	return "resume"
}

// Validate checks p; the error is a [*Refused].
func (p *Pause) Validate() error {
	if err := checkTask(p.Task); err != nil {
		return err
	}
	if p.Number < 1 || p.Number > maxNumber {
		return Refuse(Validation, "number %d of a pause is outside 1..%d", p.Number, int64(maxNumber))
	}
	return CheckReason(p.Reason)
}
