package commands

import (
	"regexp"
	"slices"
)

// Accepted says that a command is stored and will be acted on. For a spawn the
// state is the task's; Known says that the task was there already.
type Accepted struct {
	Task   string `json:"task"`
	State  State  `json:"state"`
	Known  bool   `json:"known,omitempty"`
	Policy string `json:"policy,omitempty"` // version of the spoke's policy that allowed a spawn
}

// RefusedBody says that a command will not be acted on, and why.
type RefusedBody struct {
	Task   string `json:"task,omitempty"`
	Code   Code   `json:"code"`
	Why    string `json:"why"`
	Hint   string `json:"hint,omitempty"`
	Policy string `json:"policy,omitempty"` // version of the spoke's policy that refused it; "" = something else did
}

// Started says that the agent of an attempt is proven running.
type Started struct {
	Task    string `json:"task"`
	Attempt int    `json:"attempt"`
	Pid     int    `json:"pid,omitempty"`
	At      int64  `json:"at"`               // ms since 1970, the spoke's database clock
	Policy  string `json:"policy,omitempty"` // version of the spoke's policy that was asked when it started
	// Isolation is what the agent is confined by, one of [IsolationLevels]; "" = not known.
	Isolation string `json:"isolation,omitempty"`
}

// Ended says that an attempt ended and the task goes on: State is where to. The
// end of the task itself is a [Result].
type Ended struct {
	Task    string  `json:"task"`
	Attempt int     `json:"attempt"`
	Outcome Outcome `json:"outcome"`
	State   State   `json:"state"`
	Reason  Reason  `json:"reason,omitempty"`
	Exit    Exit    `json:"exit"`
	At      int64   `json:"at"`
	Next    int64   `json:"next,omitempty"` // ms since 1970: no attempt follows before; 0 = one may at once
}

// Killed answers a kill: how the task ended and what was reaped on the way.
// Survivors is not empty only when something could not be ended.
type Killed struct {
	Task      string    `json:"task"`
	State     State     `json:"state"`
	Reason    Reason    `json:"reason,omitempty"`
	Reaped    []Process `json:"reaped,omitempty"`
	Survivors []Process `json:"survivors,omitempty"`
	At        int64     `json:"at"`
}

// TaskState answers a status command. As an answer to a spawn it says that its task was paused, goes on, or was cancelled and may finish.
type TaskState struct {
	Task    string `json:"task"`
	State   State  `json:"state"`
	Reason  Reason `json:"reason,omitempty"`
	Attempt int    `json:"attempt"`
	At      int64  `json:"at"`
	Next    int64  `json:"next,omitempty"` // ms since 1970: the next attempt follows no earlier, in place of what the end of the last one said; 0 = as that said

	Reasons []TaskReason `json:"reasons,omitempty"` // what keeps it from starting, as the host sees it, or what it is at
}

// A Process is one process that was ended with its task, or would not end.
type Process struct {
	Pid     int    `json:"pid"`
	Command string `json:"command"`
}

// An Outcome says how an attempt ended.
type Outcome string

// The outcomes of an attempt.
const (
	Succeeded       Outcome = "succeeded"
	AttemptFailed   Outcome = "failed"
	TimedOut        Outcome = "timed_out"
	AttemptKilled   Outcome = "killed"
	Interrupted     Outcome = "interrupted" // the agent had begun, and its lease ended or its supervisor was lost
	Released        Outcome = "released"    // the agent was not begun, and may be later
	CouldNotStart   Outcome = "unavailable"
	AttemptReplaced Outcome = "superseded"
	Parked          Outcome = "parked" // a limit of somebody else's, as of a provider: it goes on later, and no retry is spent
)

// Outcomes lists every outcome. The list is closed.
var Outcomes = []Outcome{Succeeded, AttemptFailed, TimedOut, AttemptKilled, Interrupted, Released, CouldNotStart, AttemptReplaced, Parked}

// check checks the outcome of an attempt; there is none to check where there was no attempt.
func (o Outcome) check() error {
	if !slices.Contains(Outcomes, o) {
		return Refuse(Validation, "outcome %q is not an outcome of an attempt", Clip(string(o)))
	}
	return nil
}

// An Exit is what the supervisor saw of a process.
type Exit struct {
	Code   int    `json:"code"`             // -1 when there is none
	Signal string `json:"signal,omitempty"` // "SIGKILL"
	Error  string `json:"error,omitempty"`  // why nothing was started, or what else went wrong
	Limits string `json:"limits,omitempty"` // which limits were met, and which could not be enforced
	// Breach is the limit that ended it, or that the kernel held an agent to which then failed.
	Breach *Breach `json:"breach,omitempty"`
}

// Logged is what a log says of x, as keys and values: never what the process wrote.
func (x Exit) Logged() (about []any) {
	if x.Code >= 0 {
		about = append(about, "exit_code", x.Code)
	}
	if x.Signal != "" {
		about = append(about, "signal", x.Signal)
	}
	return about
}

// Kind returns [AcceptedKind].
func (*Accepted) Kind() Kind { return AcceptedKind }

// Kind returns [RefusedKind].
func (*RefusedBody) Kind() Kind { return RefusedKind }

// Kind returns [StartedKind].
func (*Started) Kind() Kind { return StartedKind }

// Kind returns [EndedKind].
func (*Ended) Kind() Kind { return EndedKind }

// Kind returns [KilledKind].
func (*Killed) Kind() Kind { return KilledKind }

// Kind returns [StateKind].
func (*TaskState) Kind() Kind { return StateKind }

// Kind returns [ResultKind].
func (*Result) Kind() Kind { return ResultKind }

// Validate checks what a receiver relies on; the error is a [*Refused].
func (b *Accepted) Validate() error {
	if err := checkPolicy(b.Policy); err != nil {
		return err
	}
	return checkTaskState(b.Task, b.State, NoReason)
}

var codeForm = regexp.MustCompile(`^[A-Z][A-Z0-9_]{0,63}$`)

// Validate checks b.
func (b *RefusedBody) Validate() error {
	if !codeForm.MatchString(string(b.Code)) || len(b.Why) > 4096 || len(b.Hint) > 4096 {
		return Refuse(Validation, "a refusal needs a code and a short reason")
	}
	if err := checkPolicy(b.Policy); err != nil {
		return err
	}
	if b.Task == "" {
		return nil
	}
	return checkTask(b.Task)
}

// Validate checks b.
func (b *Started) Validate() error {
	if b.Pid < 0 || b.Pid > maxPid {
		return Refuse(Validation, "process id %d is outside 0..%d", b.Pid, maxPid)
	}
	for _, err := range []error{checkPolicy(b.Policy), checkIsolation(b.Isolation), checkTimes(b.At)} {
		if err != nil {
			return err
		}
	}
	return checkAttempt(b.Task, b.Attempt)
}

// Validate checks b.
func (b *Ended) Validate() error {
	if b.State.Terminal() {
		return Refuse(Validation, "an ended receipt names the open state that follows, not %q", Clip(string(b.State)))
	}
	if err := checkAttempt(b.Task, b.Attempt); err != nil {
		return err
	}
	for _, err := range []error{b.Outcome.check(), b.Exit.check(), checkTimes(b.At, b.Next)} {
		if err != nil {
			return err
		}
	}
	return checkTaskState(b.Task, b.State, b.Reason)
}

// Validate checks b.
func (b *Killed) Validate() error {
	for _, err := range []error{checkProcesses(b.Reaped), checkProcesses(b.Survivors), checkTimes(b.At)} {
		if err != nil {
			return err
		}
	}
	return checkTaskState(b.Task, b.State, b.Reason)
}

// Validate checks b.
func (b *TaskState) Validate() error {
	if err := checkTimes(b.At, b.Next); err != nil {
		return err
	}
	if err := checkReasons(b.Reasons); err != nil {
		return err
	}
	return checkTaskState(b.Task, b.State, b.Reason)
}

// Validate checks b.
func (b *Result) Validate() error {
	if !b.State.Terminal() && !b.Delivered() {
		return Refuse(Validation, "a result names a terminal state, or in_review, not %q", Clip(string(b.State)))
	}
	if err := checkGaps(slices.Concat(b.Stdout.Gaps, b.Stderr.Gaps)); err != nil {
		return err
	}
	for _, err := range []error{b.Exit.check(), checkOutput(b.Stdout), checkOutput(b.Stderr), checkProcesses(b.Reaped), checkProcesses(b.Survivors)} {
		if err != nil {
			return err
		}
	}
	if b.Outcome != "" { // "": there was no attempt
		if err := b.Outcome.check(); err != nil {
			return err
		}
	}
	if b.Attempt < 0 || b.Attempt > maxAttempt { // 0: it was never started
		return Refuse(Validation, "attempt %d is outside 0..%d", b.Attempt, maxAttempt)
	}
	if err := checkTaskState(b.Task, b.State, b.Reason); err != nil {
		return err
	}
	if err := checkTimes(b.StartedAt, b.EndedAt); err != nil {
		return err
	}
	if err := checkText("the kill of a result", b.Kill, 64); err != nil {
		return err
	}
	if err := checkPolicy(b.Policy); err != nil {
		return err
	}
	if err := checkIsolation(b.Isolation); err != nil {
		return err
	}
	if err := b.checkWord(); err != nil {
		return err
	}
	if err := b.checkWork(); err != nil {
		return err
	}
	return checkText("summary", b.Summary, 4096)
}

// lastTime is the end of the year 9999 in ms since 1970: what can be written as a date
// everywhere.
const lastTime = 253402300799999

// checkTimes checks times in ms since 1970; 0 stands for one that is not known.
func checkTimes(list ...int64) error {
	for _, at := range list {
		if at < 0 || at > lastTime {
			return Refuse(Validation, "time %d is outside 0..%d ms since 1970", at, int64(lastTime))
		}
	}
	return nil
}

func checkTaskState(id string, s State, r Reason) error {
	if !s.known() {
		return Refuse(Validation, "state %q is not a state of a task", Clip(string(s)))
	}
	if r != NoReason && !slices.Contains(Reasons, r) {
		return Refuse(Validation, "reason %q is not a reason of a state", Clip(string(r)))
	}
	return checkTask(id)
}

var policyForm = regexp.MustCompile(`^[0-9a-z]{0,64}$`)

func checkPolicy(version string) error {
	if !policyForm.MatchString(version) {
		return Refuse(Validation, "policy %q is not a version of up to 64 digits and lower-case letters", Clip(version))
	}
	return nil
}

// maxAttempt is far above what retries, reclaims and replays can add up to, and
// within what the database holds.
const maxAttempt = 1_000_000

// maxPid is the highest process id of any system.
const maxPid = 1<<31 - 1

func checkAttempt(id string, n int) error {
	if n < 1 || n > maxAttempt {
		return Refuse(Validation, "attempt %d is outside 1..%d", n, maxAttempt)
	}
	return checkTask(id)
}
