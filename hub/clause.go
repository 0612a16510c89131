package hub

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spawnmesh/spawnmesh/commands"
)

// clauses say how an agent stands, by its state.
var clauses = map[commands.State]string{
	commands.Claimed:       "it is about to start",
	commands.Running:       "it is running",
	commands.AwaitingInput: "it waits for input",
	commands.Blocked:       "it is blocked until somebody decides",
	commands.InReview:      "it is delivered, and waits for its review",
	commands.Approved:      "its review has passed, and it waits for its merge",
	commands.Completed:     "it has completed",
	commands.Failed:        "it has failed",
	commands.Cancelled:     "it was cancelled",
	commands.Expired:       "it has expired",
	commands.Unavailable:   "it could not be run",
}

// Clause says in one clause how an agent stands, and by which reason.
func (v AgentView) Clause() string {
	if v.Refused() {
		return "it " + v.Sentence()
	}
	if v.startedUnheard() {
		return "it was " + v.endedUnheard()
	}
	if unknown := v.givenUp(); unknown != "" {
		return unknown
	}
	if v.State == commands.Unavailable && v.Result != nil && slices.Contains([]commands.Reason{commands.KillRequested, commands.CancelRequested, commands.Operator}, v.Reason) {
		return "it was " + v.endedFirst() + " before it ran"
	}
	if v.State == commands.Failed && v.Reason == commands.ExecutorDied {
		lost := "it was lost"
		if how, told := strings.CutPrefix(v.Sentence(), string(v.State)+": "); told { // a viewer is not told
			lost += ": " + how
		}
		return lost + "; what it had done until then stays done; order it again, and --on-loss rerun where that may be repeated"
	}
	if v.State == commands.Paused && v.Reason == commands.ExecutorDied {
		return "it is paused, and its process is gone; resumed it runs once more"
	}
	if v.State == commands.Unavailable && v.Reason == commands.LinkRevoked && v.Attempt > 0 {
		return fmt.Sprintf("it has run, and was to run again when the connection was revoked (%s)", v.Reason)
	}
	clause, known := clauses[v.State]
	if !known {
		clause = "it is " + string(v.State)
	}
	return clause + v.by() + strings.TrimPrefix(v.Sentence(), string(v.State)) + v.word()
}

// exhausted are the words for reasons by which no attempt follows.
var exhausted = map[commands.Reason]string{
	commands.RetriesExhausted:  "no retry is left",
	commands.ReclaimsExhausted: "it was lost too often",
}

// by is the reason of an end whose summary does not tell it, in brackets; "" where that does, or there is none.
func (v AgentView) by() string {
	r, ok := commands.ReadResult(v.Result)
	switch {
	case !ok, v.Reason == commands.NoReason, r.Exit.Breach != nil:
		return ""
	case slices.Contains([]commands.Reason{commands.KillRequested, commands.CancelRequested, commands.Operator, commands.LinkRevoked, commands.CommandExpired, commands.DeadlineElapsed}, v.Reason):
		return ""
	}
	return fmt.Sprintf(" (%s)", cmp.Or(exhausted[v.Reason], endedBy[v.Reason], string(v.Reason)))
}

// word is what the agent itself has said of its end, as words of its own; "" where it has said nothing.
func (v AgentView) word() string {
	r, _ := commands.ReadResult(v.Result)
	switch said := r.Reported; {
	case said == nil, r.Delivered() && !v.Reviewed():
		return ""
	case said.NoRetry():
		return strings.TrimSuffix("; it said that it has failed and a retry is of no use: "+commands.OneLine(said.Text), ": ")
	default:
		return strings.TrimSuffix(fmt.Sprintf("; it said %q: %s", said.As, commands.OneLine(said.Text)), ": ")
	}
}
