package commands

import (
	"fmt"
	"slices"

	"github.com/spawnmesh/spawnmesh/signing"
)

// What a newer peer says may have fields and words that this version does not know. See docs/decisions/0042.

// newerFields reports whether a message of the kind may have fields that are not known here. An order, a key set and a piece of
// output may not: what is not known of them may be a limit, or say what the bytes are.
func (k Kind) newerFields() bool {
	switch k.Type() {
	case signing.Receipt, signing.Result, signing.Peer:
		return true
	}
	return false
}

// understand puts [CauseState], and a text, in place of words that are not known here.
func (b *TaskState) understand() {
	for i, r := range b.Reasons {
		if !slices.Contains(Causes, r.Code) {
			b.Reasons[i].Code = CauseState
		}
	}
	if b.Reason == NoReason || slices.Contains(Reasons, b.Reason) {
		return
	}
	if len(b.Reasons) < MaxReasons {
		b.Reasons = append(b.Reasons, TaskReason{Code: CauseState, Text: fmt.Sprintf("its reason is %q, which this version does not know", Clip(string(b.Reason)))})
	}
	b.Reason = NoReason
}

// EndOf is what is known of the end of a task whose result cannot be read, for the cause that why says: that it has ended, and the
// state where that is there. body is nil where it is not what was signed.
func EndOf(body []byte, at int64, why *Refused) *Result {
	var said struct {
		Task    string `json:"task"`
		State   State  `json:"state"`
		Attempt int    `json:"attempt"`
	}
	if signing.CheckBody(body) != nil || signing.DecodeKnown(body, &said) != nil {
		said.Task, said.State, said.Attempt = "", "", 0
	}
	return UnknownEnd(said.Task, said.State, said.Attempt, at, fmt.Sprintf("its result could not be read here (%s): %s", why.Code, why.Why))
}

// UnknownEnd is the result of a task of which little more than its end is known, and why so.
func UnknownEnd(task string, state State, attempt int, at int64, why string) *Result {
	r := &Result{Task: task, State: state, Reason: ResultUnknown, Attempt: attempt, Summary: Clean(why, maxWhy), Exit: Exit{Code: -1}, EndedAt: at}
	if checkTask(task) != nil {
		r.Task = ""
	}
	if !state.Terminal() {
		r.State = Failed
	}
	if attempt < 0 || attempt > maxAttempt {
		r.Attempt = 0
	}
	return r
}
