package commands

import (
	"cmp"
	"time"
)

// A LastError says how the last attempt of a task failed, while there is none after it that has succeeded.
type LastError struct {
	Code    string    `json:"code"` // a [Reason], or the [Outcome] where there is none
	Text    string    `json:"text,omitempty"`
	Attempt int       `json:"attempt"`
	At      time.Time `json:"at"`
}

// MaxError is the limit of [LastError.Text] in bytes.
const MaxError = 500

// ErrorOf is how an attempt failed, without its time; nil where it has not. What was parked, or ended because somebody
// asked for that, has not failed; what could not be begun yet has.
func ErrorOf(attempt int, o Outcome, why Reason, x Exit, said *Report) *LastError {
	switch {
	case o == AttemptFailed, o == CouldNotStart, o == Released && x.Error != "":
	case o == TimedOut:
		why = cmp.Or(why, DeadlineElapsed)
	case o == Interrupted:
		why = cmp.Or(why, ExecutorDied)
	default:
		return nil
	}
	if why == RetriesExhausted || why == ReclaimsExhausted { // is about the task
		why = NoReason
	}
	if x.Breach != nil {
		why = x.Breach.Limit
	}
	text := (&Result{Exit: x}).Sentence()
	if said != nil && said.As == SaidFailed && said.Text != "" {
		text = said.Text
	}
	return &LastError{Code: cmp.Or(string(why), string(o)), Text: Clean(text, MaxError), Attempt: attempt}
}
