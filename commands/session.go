package commands

// A SessionState says how the session stands that an agent has registered with its own runtime.
type SessionState string

// The states of a session.
const (
	NoSession SessionState = "none"
	Live      SessionState = "live"      // the attempt runs
	Adopted   SessionState = "adopted"   // the attempt runs, and was taken over by a spoke that was started again
	Resumable SessionState = "resumable" // nothing runs, and the next attempt is given its id
	Retired   SessionState = "retired"   // the task has ended: nobody is given it any more
)

// SessionStates lists them.
var SessionStates = []SessionState{NoSession, Live, Adopted, Resumable, Retired}

// Session is how the session of a task stands: whether its id is kept, the state of the task, whether an attempt has an agent
// that runs, and whether that one was adopted.
func Session(kept bool, state State, runs, adopted bool) SessionState {
	switch {
	case !kept:
		return NoSession
	case state.Terminal():
		return Retired
	case !runs:
		return Resumable
	case adopted:
		return Adopted
	}
	return Live
}
