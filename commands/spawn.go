package commands

import (
	"regexp"
	"strings"
	"time"
)

// Limits of a spawn. The spoke's policy may be narrower, never wider.
const (
	MaxTitle        = 256
	MaxArgs         = 4096
	MaxArgBytes     = 128 << 10
	MaxEnv          = 256
	MaxEnvBytes     = 64 << 10
	MaxCapabilities = 256
	MaxRetries      = 100
	MinPriority     = -100
	MaxPriority     = 100
	MaxTimeout      = 30 * 24 * time.Hour
	MaxGrace        = 10 * time.Minute
	MaxReason       = 1024
	MaxBackoff      = time.Hour
)

// Runtimes a spawn may name.
const (
	RuntimeExec = "exec" // start the program argv
	RuntimeNoop = "noop" // start nothing: proves the whole path at no cost
)

// Spawn asks a spoke to run one agent. The sender chooses the task's id, which
// is the agent's id too, so a repeated spawn is known for what it is.
type Spawn struct {
	Task         string   `json:"task"`
	Title        string   `json:"title,omitempty"`
	Runtime      string   `json:"runtime"`
	Argv         []string `json:"argv,omitempty"`
	Dir          string   `json:"dir,omitempty"`
	Env          []EnvVar `json:"env,omitempty"`
	Sealed       *Sealed  `json:"sealed,omitempty"` // the values of Env, what Files hold, standard input; nil where there are none
	Capabilities []string `json:"capabilities,omitempty"`
	Priority     int      `json:"priority,omitempty"`
	TimeoutMS    int64    `json:"timeout_ms,omitempty"`
	EstimateMS   int64    `json:"estimate_ms,omitempty"` // how long a run is thought to take; 0 = nobody knows
	MaxRetries   int      `json:"max_retries,omitempty"`
	BackoffMS    int64    `json:"backoff_ms,omitempty"` // before the first retry at most, twice as long before each next one; 0 = as the spoke has it
	OnLoss       string   `json:"on_loss,omitempty"`    // "" = LossFails
	Trace        string   `json:"trace,omitempty"`      // what its spans belong to: a traceparent of W3C Trace Context; "" = nothing
	Files        []File   `json:"files,omitempty"`
	Stdin        bool     `json:"stdin,omitempty"`    // the agent reads standard input that came with the order
	Prompt       bool     `json:"prompt,omitempty"`   // the agent finds a prompt that came with the order
	Inputs       []Input  `json:"inputs,omitempty"`   // what its spoke fetches from its hub before it starts
	Review       bool     `json:"review,omitempty"`   // what it delivers is reviewed before its task has completed
	RetryOf      string   `json:"retry_of,omitempty"` // the task that ended, whose order is given anew; "" = it is no retry
}

// What becomes of an agent that was proven to run and was then lost: its shim
// was killed, its spoke stayed away longer than its lease, or the host restarted.
const (
	LossFails  = "fail"  // a failure like any other, within MaxRetries
	LossReruns = "rerun" // run again within MaxRetries, and once also where that is 0
)

// Losses returns how often a lost agent may be run again.
func (s *Spawn) Losses() int {
	if s.OnLoss == LossReruns {
		return max(1, s.MaxRetries)
	}
	return s.MaxRetries
}

// Kind returns [SpawnKind].
func (*Spawn) Kind() Kind { return SpawnKind }

// Timeout returns how long the agent may run, 0 for no limit.
func (s *Spawn) Timeout() time.Duration { return time.Duration(s.TimeoutMS) * time.Millisecond }

// Backoff returns how long the first retry waits at most, 0 as the spoke has it.
func (s *Spawn) Backoff() time.Duration { return time.Duration(s.BackoffMS) * time.Millisecond }

// Estimate returns how long a run is thought to take, 0 where nobody knows.
func (s *Spawn) Estimate() time.Duration { return time.Duration(s.EstimateMS) * time.Millisecond }

// validCapability wants 1 to 64 letters, digits and . _ : / + - behind a letter
// or digit.
func validCapability(s string) bool {
	for i := range len(s) {
		c := s[i]
		plain := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !plain && (i == 0 || !strings.ContainsRune("._:/+-", rune(c))) {
			return false
		}
	}
	return s != "" && len(s) <= 64
}

// traceForm is a traceparent of version 00, and noTrace what has that form and names nothing (W3C Trace Context, 3.2).
var (
	traceForm = regexp.MustCompile(`^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)
	noTrace   = regexp.MustCompile(`^00-(0{32}-|[0-9a-f]{32}-0{16}-)`)
)

func validTrace(s string) bool { return traceForm.MatchString(s) && !noTrace.MatchString(s) }

// Validate checks s against the limits; the error is a [*Refused].
func (s *Spawn) Validate() error {
	if err := s.ValidateOrder(); err != nil {
		return err
	}
	return s.checkSealed()
}

// ValidateOrder is Validate before the values of the environment are sealed.
func (s *Spawn) ValidateOrder() error {
	if err := checkTask(s.Task); err != nil {
		return err
	}
	if err := checkLine("the title", s.Title, MaxTitle); err != nil {
		return err
	}
	switch {
	case s.Runtime != RuntimeExec && s.Runtime != RuntimeNoop:
		return Refuse(Validation, "runtime %q is not known; this version runs exec and noop", Clip(s.Runtime))
	case s.Priority < MinPriority || s.Priority > MaxPriority:
		return Refuse(Validation, "priority %d is outside %d..%d", s.Priority, MinPriority, MaxPriority)
	case s.TimeoutMS < 0 || s.TimeoutMS > MaxTimeout.Milliseconds():
		return Refuse(Validation, "timeout of %d ms is outside 0..%d", s.TimeoutMS, MaxTimeout.Milliseconds())
	case s.EstimateMS < 0 || s.EstimateMS > MaxTimeout.Milliseconds():
		return Refuse(Validation, "estimate of %d ms is outside 0..%d", s.EstimateMS, MaxTimeout.Milliseconds())
	case s.BackoffMS < 0 || s.BackoffMS > MaxBackoff.Milliseconds():
		return Refuse(Validation, "back-off of %d ms is outside 0..%d", s.BackoffMS, MaxBackoff.Milliseconds())
	case s.OnLoss != "" && s.OnLoss != LossFails && s.OnLoss != LossReruns:
		return Refuse(Validation, "on loss %q is neither fail nor rerun", Clip(s.OnLoss))
	case s.Trace != "" && !validTrace(s.Trace):
		return Refuse(Validation, "trace %q is no traceparent of version 00", Clip(s.Trace))
	case s.MaxRetries < 0 || s.MaxRetries > MaxRetries:
		return Refuse(Validation, "max retries %d is outside 0..%d", s.MaxRetries, MaxRetries)
	}
	if s.RetryOf != "" {
		if err := checkTask(s.RetryOf); err != nil {
			return err
		}
	}
	if err := s.checkArgv(); err != nil {
		return err
	}
	if err := s.checkEnv(); err != nil {
		return err
	}
	if err := s.checkInline(); err != nil {
		return err
	}
	if err := s.checkInputs(); err != nil {
		return err
	}
	return checkCapabilities(s.Capabilities)
}

func (s *Spawn) checkArgv() error {
	if !IsText(s.Dir) || len(s.Dir) > 4096 {
		return Refuse(BadPath, "the directory contains a NUL, is not UTF-8 or is longer than 4096 bytes")
	}
	if s.Runtime == RuntimeNoop {
		if len(s.Argv) > 0 {
			return Refuse(Validation, "runtime noop takes no command")
		}
		return nil
	}
	if len(s.Argv) == 0 || s.Argv[0] == "" {
		return Refuse(Validation, "no command given").Hinting("put it after --, as in").Running("spawn", "--spoke", "NAME", "--", "echo", "hi")
	}
	if len(s.Argv) > MaxArgs {
		return Refuse(Validation, "%d arguments, limit %d", len(s.Argv), MaxArgs)
	}
	total := 0
	for i, a := range s.Argv {
		total += len(a) + 1
		if !IsText(a) {
			return Refuse(Validation, "argument %d contains a NUL or is not valid UTF-8", i)
		}
	}
	if total > MaxArgBytes {
		return Refuse(Validation, "the arguments are %d bytes, limit %d", total, MaxArgBytes)
	}
	return nil
}

// OwnCapabilities is how many capabilities, and bytes of them, a spoke may name itself: it has to
// have room for those of its isolation, and claims and heartbeats carry all of them.
const OwnCapabilities, OwnCapabilityBytes = MaxCapabilities - 16, MaxCapabilityBytes - 512

// MaxCapabilityBytes bounds the names of the capabilities of a claimer together.
const MaxCapabilityBytes = 4096

// CheckCapability checks the name of a capability.
func CheckCapability(name string) error { return checkCapabilities([]string{name}) }

func checkCapabilities(list []string) error {
	if len(list) > MaxCapabilities {
		return Refuse(Validation, "%d capabilities, limit %d", len(list), MaxCapabilities)
	}
	for _, c := range list {
		if !validCapability(c) {
			return Refuse(Validation, "capability %q is not a name of 1 to 64 letters, digits and . _ : / + -", Clip(c))
		}
	}
	return nil
}

// Status asks a spoke how a task stands.
type Status struct {
	Task string `json:"task"`
}

// Kind returns [StatusKind].
func (*Status) Kind() Kind { return StatusKind }

// Validate checks s; the error is a [*Refused].
func (s *Status) Validate() error { return checkTask(s.Task) }

// KillsAhead is how far a clock may be behind that of its peer and take its kills all the same: one ends what it names, whoever's
// clock is wrong.
const KillsAhead = 24 * time.Hour

// Kill asks a spoke to end a task and its whole process tree now, or to cancel it. It
// overtakes queues, and is remembered when it arrives before its spawn.
type Kill struct {
	Task    string `json:"task"`
	Reason  string `json:"reason"`
	GraceMS int64  `json:"grace_ms"`
	Cancel  string `json:"cancel,omitempty"` // "" = it is a kill
}

// How a task is cancelled. What waits is cancelled at once either way.
const (
	CancelNow   = "now"   // what runs is asked to end, and ended after the grace; with exit code 0 it has completed
	CancelAfter = "after" // what runs may finish, and nothing runs after it
)

// Kind returns [KillKind].
func (*Kill) Kind() Kind { return KillKind }

// Grace returns the time between TERM and KILL.
func (k *Kill) Grace() time.Duration { return time.Duration(k.GraceMS) * time.Millisecond }

// Word is what k asks for: a kill, or a cancel.
func (k *Kill) Word() string {
	if k.Cancel != "" {
		return "cancel"
	}
	return "kill"
}

// Validate checks k; the error is a [*Refused].
func (k *Kill) Validate() error {
	if err := checkTask(k.Task); err != nil {
		return err
	}
	return k.ValidateTerms()
}

// ValidateTerms is Validate before it is known what is to end.
func (k *Kill) ValidateTerms() error {
	switch {
	case k.Cancel != "" && k.Cancel != CancelNow && k.Cancel != CancelAfter:
		return Refuse(Validation, "cancel %q is neither now nor after", Clip(k.Cancel))
	case strings.TrimSpace(k.Reason) == "":
		return Refuse(Validation, "a %s needs a reason", k.Word()).Hinting("say why; it is recorded")
	}
	if k.GraceMS < 0 || k.GraceMS > MaxGrace.Milliseconds() {
		return Refuse(Validation, "grace of %d ms is outside 0..%d", k.GraceMS, MaxGrace.Milliseconds())
	}
	return checkText("reason", k.Reason, MaxReason)
}
