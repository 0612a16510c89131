package hub

import (
	"fmt"
	"strings"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// An AgentView is a mirror with what was received about it.
type AgentView struct {
	store.Mirror
	ExitCode *int                    `json:"exit_code,omitempty"` // of the last attempt's process
	Receipts []store.ReceiptRow      `json:"receipts,omitempty"`
	Output   []store.LogStream       `json:"output,omitempty"`  // what of it has arrived
	Progress *commands.AgentProgress `json:"-"`                 // what the agent has said last; nil = nothing, or it does not run
	Verdict  *commands.Verdict       `json:"verdict,omitempty"` // what it is at; nil = it has not begun, or has ended
	Overrun  bool                    `json:"overrun,omitempty"` // it runs longer than estimated, as its spoke said last
	// OverrunSince and OverrunUntil are as the host of the agent knows them; nil elsewhere.
	OverrunSince *time.Time `json:"overrun_since,omitempty"`
	OverrunUntil *time.Time `json:"overrun_until,omitempty"`

	Memory int64 `json:"memory_bytes,omitempty"` // of its tree, as its spoke said last, with
	CPUMS  int64 `json:"cpu_ms,omitempty"`       // processor time so far
	Before *int  `json:"before,omitempty"`       // orders of this hub that its spoke takes before it; nil = not known, or it has begun
	// ProtocolCancel says of one whose end is ordered what became of the order: "sent" (its spoke has it), "unavailable" (not yet) or "refused".
	ProtocolCancel string `json:"protocol_cancel,omitempty"`
	// NotRetried is why one that has ended is not retried; nil = it is, or that was not asked.
	NotRetried *commands.Refused `json:"-"`
}

// Refused reports whether the last spoke that the agent was ordered from has refused it. Who does not see
// the signed refusal knows it by the reason.
func (v AgentView) Refused() bool {
	return v.Refusal != nil || v.State == commands.Unavailable && len(v.Refusals) > 0 && endedBy[v.Reason] == "refused"
}

// Sentence says in a few words how an agent stands.
func (v AgentView) Sentence() string {
	if v.killedFirst() {
		return "was " + v.endedFirst() + " before it began"
	}
	if v.Refused() {
		var list []string
		for _, r := range v.Refusals {
			list = append(list, r.String())
		}
		return "was refused " + strings.Join(list, ", ")
	}
	if r, ok := commands.ReadResult(v.Result); ok && !r.Delivered() {
		if r.Summary == string(v.State) {
			return r.Summary
		}
		return string(v.State) + ": " + r.Summary
	}
	if why := v.givenUp(); why != "" {
		return fmt.Sprintf("%s (%s): %s", v.State, v.Reason, why)
	}
	if v.Reason != "" {
		return fmt.Sprintf("%s (%s)", v.State, v.Reason)
	}
	return string(v.State)
}

// Reviewed reports whether what an agent has delivered waits for its review, or its merge.
func (v AgentView) Reviewed() bool {
	return v.State == commands.InReview || v.State == commands.Approved
}

// givenUp says of an agent that its spoke had accepted what is not known of it, where the hub waits for no result any more; "" where it does, or has
// one.
func (v AgentView) givenUp() string {
	ran, unknown := v.StartedAt != nil, "whether it ran is not known here"
	if ran {
		unknown = "what became of it is not known here"
	}
	switch {
	case v.startedUnheard():
		return v.endedUnheard()
	case v.State != commands.Unavailable || v.Result != nil || v.AcceptedAt == nil && !ran:
	case v.unansweredEnd() != "":
		return fmt.Sprintf("%s did not answer the order to %s it in time; %s", v.Spoke, v.unansweredEnd(), unknown)
	case v.Reason == commands.LinkRevoked && !v.Between() && ran:
		return "the connection was revoked while it ran; " + unknown
	case v.Reason == commands.LinkRevoked && !v.Between():
		return fmt.Sprintf("the connection was revoked when %s had accepted it; %s", v.Spoke, unknown)
	}
	return ""
}

// startedUnheard reports whether the hub has ended an agent with its order, and heard after that that its spoke had started it.
func (v AgentView) startedUnheard() bool {
	return v.State == commands.Expired && v.Reason == commands.CommandExpired && v.Result == nil && v.StartedAt != nil
}

func (v AgentView) endedUnheard() string {
	if v.Unheard {
		return fmt.Sprintf("ended here unheard; it runs on %s since %s", v.Spoke, v.StartedAt.UTC().Format(time.RFC3339))
	}
	return fmt.Sprintf("ended here unheard; %s has told its end since, which changes nothing here", v.Spoke)
}

// unansweredEnd is the order that ended an agent at its hub alone, as its spoke did not answer it: "kill", "cancel", or "".
func (v AgentView) unansweredEnd() string {
	switch {
	case v.State != commands.Unavailable || v.Result != nil:
	case v.Reason == commands.KillRequested:
		return "kill"
	case v.Reason == commands.CancelRequested:
		return "cancel"
	}
	return ""
}

// Since is when an agent came into its state, as far as it is known.
func (v AgentView) Since() time.Time {
	switch {
	case v.State == commands.Queued && v.Attempt == 0:
		return v.CreatedAt
	case v.State == commands.Running && v.StartedAt != nil:
		return *v.StartedAt
	case v.EndedAt != nil:
		return *v.EndedAt
	}
	return v.UpdatedAt
}
