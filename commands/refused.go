package commands

import (
	"errors"
	"fmt"

	"github.com/spawnmesh/spawnmesh/signing"
)

// A Code says why a command was refused. Codes cross the wire and are stored:
// a code is never renamed and never reused. The codes of [signing] are codes
// too.
type Code = signing.Code

// The codes of refusals that are decided after an envelope was opened.
const (
	Validation      Code = "VALIDATION"        // a field of the body breaks its rule
	BadEnv          Code = "BAD_ENV"           // an environment variable breaks its rule
	BadPath         Code = "PATH"              // a path leaves what is allowed
	Policy          Code = "POLICY"            // the spoke's own policy does not allow it
	Grant           Code = "GRANT"             // the connection's grant does not allow it
	Capability      Code = "CAPABILITY"        // the spoke does not have a required capability, or cannot open now what is named
	InputMissing    Code = "INPUT_MISSING"     // an input of the order is not there, or did not come in time
	InputTooLarge   Code = "INPUT_TOO_LARGE"   // the inputs of the order are more than is taken
	UnknownTask     Code = "UNKNOWN_TASK"      // no such task on this instance
	TaskConflict    Code = "TASK_CONFLICT"     // task id was used before with other content
	Tombstone       Code = "TOMBSTONE"         // the task was killed before it arrived
	Resync          Code = "RESYNC"            // the histories of the two sides differ
	Rate            Code = "RATE"              // more than the connection may send
	Full            Code = "FULL"              // no more of the sender's messages are kept now
	ReUnknown       Code = "RE_UNKNOWN"        // an answer to a command that was never given
	FenceStale      Code = "FENCE_STALE"       // an answer of an attempt that was replaced
	ResultClash     Code = "RESULT_CONFLICT"   // a second, different result of one task
	TooMany         Code = "TOO_MANY"          // more answers to one command than an honest peer has
	Offset          Code = "OFFSET"            // output that does not go on where the stored output ends
	Idempotency     Code = "IDEMPOTENCY"       // idempotency key used with other content
	NotFound        Code = "NOT_FOUND"         // no such thing
	Conflict        Code = "CONFLICT"          // the thing is in a state that forbids it
	Ambiguous       Code = "AMBIGUOUS"         // a prefix or a name fits more than one
	NoSpoke         Code = "NO_SPOKE"          // nothing can run it
	Unreachable     Code = "UNREACHABLE"       // the other side cannot be reached
	StoreDown       Code = "STORE"             // cannot store, so nothing was accepted, or may have been where the text says so
	StaleAttempt    Code = "STALE_ATTEMPT"     // a fence that no longer holds the task
	Cycle           Code = "DEPENDENCY_CYCLE"  // the edge would close a circle
	OverBudget      Code = "OVER_BUDGET"       // a budget that refuses new work is spent
	LaneClosed      Code = "LANE_CLOSED"       // the lane takes no new work
	FrozenThere     Code = "FROZEN"            // nothing is started there until it is unfrozen
	GrantMalformed  Code = "GRANT_MALFORMED"   // not a claim grant
	GrantExpired    Code = "GRANT_EXPIRED"     // its last moment has passed
	GrantKeyUnknown Code = "GRANT_KEY_UNKNOWN" // signed with a key this instance does not have
	GrantUnknown    Code = "GRANT_UNKNOWN"     // no open attempt was given it
	GrantMismatch   Code = "GRANT_MISMATCH"    // its signature does not fit what it says
	StreamLoss      Code = "STREAM_LOSS"       // messages on the way were dropped, and are sent again
	AuditBroken     Code = "AUDIT_BROKEN"      // the audit is not what a checkpoint of it says
	NoAnswer        Code = "NO_ANSWER"         // nobody has answered a question in time, and it has no default
	NoResult        Code = "NO_RESULT"         // the task has not ended
	NotReady        Code = "NOT_READY"         // something that the instance needs on its host is not there
	Internal        Code = "INTERNAL"          // a defect of ours

	// Of requests to an instance.
	MethodNotAllowed Code = "METHOD_NOT_ALLOWED"     // its path takes other methods
	UnsupportedMedia Code = "UNSUPPORTED_MEDIA_TYPE" // its body is not JSON
	PayloadTooLarge  Code = "PAYLOAD_TOO_LARGE"      // its body has more bytes than are taken
	RequestTimeout   Code = "REQUEST_TIMEOUT"        // its body did not come to its end in time
	Forbidden        Code = "FORBIDDEN"              // it is not for who asks
	Unauthenticated  Code = "UNAUTHENTICATED"        // it has no token, or one that is not valid
	Misdirected      Code = "MISDIRECTED"            // it names another host
	TooManyRequests  Code = "TOO_MANY_REQUESTS"      // its sender makes more than it may
)

// Refused is the error for an ask that will not be met.
//
// Code, Why, Hint and Run are for the one who asked. Run is what a person may
// type next to the same instance, without the program's name and its flags: who
// shows it knows these. Hint then says what for. Err is the cause as we know it;
// it is for our log and never sent. MayBeDone: it was not answered, and may have been met all the same.
type Refused struct {
	Code Code
	Why  string
	Hint string
	Run  []string
	Err  error

	MayBeDone bool
}

// ErrMayBeDone is in the error of what nobody knows the outcome of, as of a commit that was not answered: whoever answers a caller must not
// say that nothing was done.
var ErrMayBeDone = errors.New("it may have been done")

// Error gives the reason, and the cause where there is one.
func (r *Refused) Error() string {
	if r.Err != nil {
		return fmt.Sprintf("%s: %v", r.Why, r.Err)
	}
	return r.Why
}

// Unwrap returns the cause.
func (r *Refused) Unwrap() error { return r.Err }

// Refuse makes a [*Refused] without a hint. A reason of more than 1000 bytes is
// cut, and one that no message may carry cleaned: it may quote what somebody else wrote.
func Refuse(code Code, format string, args ...any) *Refused {
	why := fmt.Sprintf(format, args...)
	if len(why) > maxWhy {
		why = Clean(why, maxWhy-3) + "..."
	}
	why = Clean(why, maxWhy)
	return &Refused{Code: code, Why: why}
}

// Hinting returns r with a hint at what to do next.
func (r *Refused) Hinting(format string, args ...any) *Refused {
	r.Hint = fmt.Sprintf(format, args...)
	return r
}

// Running returns r with a command line to type next, word by word.
func (r *Refused) Running(words ...string) *Refused {
	r.Run = words
	return r
}

// CodeOf returns the code of the first [Refused] or [signing.Rejected] in err's
// chain, and [Internal] for every other error. It returns "" for nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	if r, ok := errors.AsType[*Refused](err); ok {
		return r.Code
	}
	if r, ok := errors.AsType[*signing.Rejected](err); ok {
		return r.Code
	}
	return Internal
}
