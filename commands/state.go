package commands

import "slices"

// A State is the one stored state of a task.
type State string

// The states of a task. The last five are terminal.
const (
	Queued        State = "queued"         // accepted and stored; ready or gated
	Claimed       State = "claimed"        // one attempt holds a lease, the agent is not yet proven running
	Running       State = "running"        // proven active under the current attempt
	AwaitingInput State = "awaiting_input" // waits for a human, a peer, an approval, a credential
	Paused        State = "paused"         // paused by the operator
	Blocked       State = "blocked"        // needs a decision; never claimed by itself
	InReview      State = "in_review"      // delivered, review open
	Approved      State = "approved"       // review passed, merge pending
	Completed     State = "completed"      // success, result available
	Failed        State = "failed"         // error result, retries spent or not retryable
	Cancelled     State = "cancelled"      // cancel boundary reached, or killed
	Expired       State = "expired"        // deadline or time to live passed
	Unavailable   State = "unavailable"    // nothing can run it and nothing will try again by itself
)

// States lists every state in the order of the model.
var States = []State{Queued, Claimed, Running, AwaitingInput, Paused, Blocked, InReview, Approved,
	Completed, Failed, Cancelled, Expired, Unavailable}

// Terminal reports whether nothing but an operator's retry leads out of s.
func (s State) Terminal() bool {
	switch s {
	case Completed, Failed, Cancelled, Expired, Unavailable:
		return true
	}
	return false
}

func (s State) known() bool { return slices.Contains(States, s) }

// A Trigger is what moves a task from one state to another.
type Trigger string

// The triggers of the model's transition table.
const (
	ByClaim       Trigger = "claim"       // 2
	ByStart       Trigger = "start"       // 3: the start is proven
	ByLoss        Trigger = "loss"        // 4: lease expired, executor died, retryable failure
	ByNoStart     Trigger = "no_start"    // 5: could not be started, tries spent
	ByQuestion    Trigger = "question"    // 6
	ByAnswer      Trigger = "answer"      // 6
	ByPause       Trigger = "pause"       // 7
	ByResume      Trigger = "resume"      // 7
	ByBlock       Trigger = "block"       // 8
	ByUnblock     Trigger = "unblock"     // 9
	ByDelivery    Trigger = "delivery"    // 10: done, review required
	ByDone        Trigger = "done"        // 11
	ByChanges     Trigger = "changes"     // 12, 13
	ByApproval    Trigger = "approval"    // 14
	ByMerge       Trigger = "merge"       // 15
	ByConflict    Trigger = "conflict"    // 16
	ByFailure     Trigger = "failure"     // 17
	ByCancel      Trigger = "cancel"      // 18: nothing runs, so at once
	ByCancelled   Trigger = "cancelled"   // 19: cancel acknowledged, or kill done
	ByExpiry      Trigger = "expiry"      // 20
	ByRetry       Trigger = "retry"       // 21: the operator's
	ByUnavailable Trigger = "unavailable" // 5: no target, executor or capability
	ByOperator    Trigger = "operator"    // 11 by a person's word, from where no worker's word is
	ByRelease     Trigger = "release"     // 4: given back by its worker, or taken back by the operator
)

// A Transition is one allowed move of a task.
type Transition struct {
	From, To State
	By       Trigger
}

// Transitions is the table of the model, without the moves that no act makes (decision 37); creation is not in it because it
// has no state to leave. Every move that is not listed is an error.
var Transitions = slices.Concat(
	moves(ByClaim, Claimed, Queued),
	moves(ByStart, Running, Claimed),
	moves(ByLoss, Queued, Claimed, Running),
	moves(ByNoStart, Unavailable, Claimed),
	moves(ByUnavailable, Unavailable, Queued, AwaitingInput, Paused, Blocked), // of what waits a peer may recall it after a restore
	moves(ByQuestion, AwaitingInput, Running),
	moves(ByLoss, AwaitingInput, Queued), // the attempt that asked is lost; its task, whose row says queued meanwhile, waits for the answer as before
	moves(ByAnswer, Running, AwaitingInput),
	moves(ByAnswer, Queued, AwaitingInput),
	moves(ByPause, Paused, Queued, Running),
	moves(ByResume, Queued, Paused),
	moves(ByResume, Running, Paused),
	moves(ByBlock, Blocked, Queued, Claimed, AwaitingInput),
	moves(ByUnblock, Queued, Blocked),
	moves(ByDelivery, InReview, Queued, Claimed, Running), // while an attempt holds a task its row says queued
	moves(ByDone, Completed, Claimed, Running),            // a card's worker proves with its result that it had started
	moves(ByOperator, Completed, Queued, Claimed, AwaitingInput, Paused, Blocked),
	moves(ByRelease, Queued, Claimed, Running),
	moves(ByChanges, Running, InReview),
	moves(ByChanges, Queued, InReview),
	moves(ByApproval, Approved, InReview),
	moves(ByMerge, Completed, Approved),
	moves(ByConflict, Running, Approved),
	moves(ByConflict, Queued, Approved),
	moves(ByFailure, Failed, open()...),
	moves(ByCancel, Cancelled, Queued, AwaitingInput, Paused, Blocked),
	moves(ByCancelled, Cancelled, Claimed, Running, AwaitingInput, InReview, Approved),
	moves(ByExpiry, Expired, slices.DeleteFunc(open(), func(s State) bool { return s == Blocked })...), // what is blocked waits for a person, whatever the time
	moves(ByRetry, Queued, Failed, Unavailable, Expired, Cancelled),
)

func moves(by Trigger, to State, from ...State) []Transition {
	list := make([]Transition, len(from))
	for i, f := range from {
		list[i] = Transition{f, to, by}
	}
	return list
}

// open lists the states that are not terminal.
func open() []State {
	return slices.DeleteFunc(slices.Clone(States), State.Terminal)
}

// May reports whether trigger by may move a task from one state to another.
func May(from, to State, by Trigger) bool {
	return slices.Contains(Transitions, Transition{from, to, by})
}

// From lists the states that trigger by may leave.
func From(by Trigger) []State {
	var list []State
	for _, t := range Transitions {
		if t.By == by && !slices.Contains(list, t.From) {
			list = append(list, t.From)
		}
	}
	return list
}

// A Reason says why a task is in its state. The list is closed.
type Reason string

// The reasons of the model.
const (
	NoReason           Reason = ""
	ExecutorBusy       Reason = "executor_busy"
	PermissionRequired Reason = "permission_required"
	DeadlineElapsed    Reason = "deadline_elapsed"
	CapabilityMissing  Reason = "capability_missing"
	CancelRequested    Reason = "cancel_requested"
	KillRequested      Reason = "kill_requested"
	MergeConflict      Reason = "merge_conflict"
	DependencyFailed   Reason = "dependency_failed"
	DependencyCycle    Reason = "dependency_cycle"
	LeaseExpired       Reason = "lease_expired"
	ExecutorDied       Reason = "executor_died"
	RetriesExhausted   Reason = "retries_exhausted"
	ReclaimsExhausted  Reason = "reclaims_exhausted"
	BudgetExceeded     Reason = "budget_exceeded"
	QuotaExceeded      Reason = "quota_exceeded"
	Limit              Reason = "limit"
	LinkDown           Reason = "link_down"
	LinkRevoked        Reason = "link_revoked"
	GrantDenied        Reason = "grant_denied"
	PolicyDenied       Reason = "policy_denied"
	CommandExpired     Reason = "command_expired"
	Frozen             Reason = "frozen"
	Operator           Reason = "operator"
	IdleTimeout        Reason = "idle_timeout"
	OOMKilled          Reason = "oom_killed"
	CPULimit           Reason = "cpu_limit"
	ProcessLimit       Reason = "process_limit"
	DiskLimit          Reason = "disk_limit"
	OutputLimit        Reason = "output_limit"
	IDUsed             Reason = "id_used"
	Overrun            Reason = "overrun"        // it ran longer than estimated, and told no progress
	WaitingInput       Reason = "waiting_input"  // inputs of its order are on their way
	InputNotThere      Reason = "input_missing"  // an input of its order did not come
	ResultUnknown      Reason = "result_unknown" // the task has ended, and whoever ordered it could not read how
)

// Reasons lists every reason but the empty one.
var Reasons = []Reason{ExecutorBusy, PermissionRequired, DeadlineElapsed, CapabilityMissing, CancelRequested,
	KillRequested, MergeConflict, DependencyFailed, DependencyCycle, LeaseExpired, ExecutorDied, RetriesExhausted,
	ReclaimsExhausted, BudgetExceeded, QuotaExceeded, Limit, LinkDown, LinkRevoked, GrantDenied, PolicyDenied, CommandExpired,
	Frozen, Operator, IdleTimeout, OOMKilled, CPULimit, ProcessLimit, DiskLimit, OutputLimit, IDUsed, Overrun, ResultUnknown, WaitingInput, InputNotThere}
