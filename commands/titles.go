package commands

// titles say what a code means, where it is told to a person without its own words.
var titles = map[Code]string{
	Validation:      "A field breaks its rule",
	BadEnv:          "An environment variable breaks its rule",
	BadPath:         "A path leaves what is allowed",
	Policy:          "The policy of the spoke does not allow it",
	Grant:           "The grant of the connection does not allow it",
	Capability:      "The spoke does not have a required capability",
	InputMissing:    "An input of the order is not there",
	InputTooLarge:   "The inputs of the order are more than is taken",
	UnknownTask:     "There is no such task on this instance",
	TaskConflict:    "The task id was used before with other content",
	Tombstone:       "The task was killed before it arrived",
	Resync:          "The histories of the two sides differ",
	Rate:            "It is more than the connection may send",
	Full:            "No more messages of the sender are kept now",
	ReUnknown:       "It answers a command that was never given",
	FenceStale:      "It answers for an attempt that was replaced",
	ResultClash:     "The task has another result already",
	TooMany:         "There are more answers to one command than there can be",
	Offset:          "The output does not go on where the stored output ends",
	Idempotency:     "The idempotency key was used with other content",
	NotFound:        "There is no such thing",
	Conflict:        "The thing is in a state that forbids it",
	Ambiguous:       "The text fits more than one",
	NoSpoke:         "Nothing can run it",
	Unreachable:     "The other side cannot be reached",
	StoreDown:       "Nothing can be stored now",
	StaleAttempt:    "The fence no longer holds the task",
	Cycle:           "The dependency would close a circle",
	OverBudget:      "A budget that refuses new work is spent",
	FrozenThere:     "Nothing is started there until it is unfrozen",
	LaneClosed:      "The lane takes no new work",
	GrantMalformed:  "It is not a claim grant",
	GrantExpired:    "The claim grant has expired",
	GrantKeyUnknown: "The claim grant is signed with an unknown key",
	GrantUnknown:    "No open attempt was given the claim grant",
	GrantMismatch:   "The signature of the claim grant does not fit",
	StreamLoss:      "Messages on the way were dropped, and are sent again",
	AuditBroken:     "The audit was changed, or is not whole",
	NoAnswer:        "Nobody has answered in time",
	NoResult:        "The agent has not ended",
	NotReady:        "The instance cannot do its work now",
	Internal:        "A defect of this program",

	MethodNotAllowed: "The path takes other methods",
	UnsupportedMedia: "The body is of another type",
	PayloadTooLarge:  "The body is too large",
	RequestTimeout:   "The body did not come to its end in time",
	Forbidden:        "It is not for who asks",
	Unauthenticated:  "It is not known who asks",
	Misdirected:      "The request is for another host",
	TooManyRequests:  "There are more requests than there may be",
}

// Title says what a code means in one sentence without its last stop; it is the code itself where it is one
// of messages.
func Title(code Code) string {
	if t, ok := titles[code]; ok {
		return t
	}
	return string(code)
}
