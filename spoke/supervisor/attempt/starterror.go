package attempt

// A Reason classifies a start that did not happen. Reasons are stored, so
// none is ever renamed.
type Reason string

// Passes reports whether what kept an agent from starting may pass by itself.
func (r Reason) Passes() bool { return r == LeaseOver || r == NoResources || r == HostFault }

// The reasons of a [StartError]. Only the last three can pass by themselves.
const (
	NotFound      Reason = "not_found"        // there is no such program
	BadShebang    Reason = "bad_interpreter"  // the script's interpreter is missing
	ShebangLoop   Reason = "interpreter_loop" // scripts that name each other as interpreter, or a loop of links
	NotExecutable Reason = "not_executable"   // no permission to execute it
	IsDirectory   Reason = "is_directory"     // the program is a directory
	BadFormat     Reason = "bad_format"       // not a program of this machine, or a script without #!
	BadDirectory  Reason = "bad_directory"    // the working directory cannot be entered
	TooLong       Reason = "too_long"         // arguments and environment exceed what the kernel takes
	BadSpec       Reason = "bad_spec"         // the Spec contradicts its own documentation
	LeaseOver     Reason = "lease_over"       // the deadline passed before the start
	NoResources   Reason = "no_resources"     // out of processes, memory or descriptors
	HostFault     Reason = "host_fault"       // the shim could not do its work on this host
)

// A StartError says why an agent was not started. The agent has not run.
type StartError struct {
	Reason Reason `json:"reason"`
	Path   string `json:"path,omitempty"` // the program or the directory it is about
	Text   string `json:"text"`           // the system's words and what to do
}

func (e *StartError) Error() string {
	if e.Path == "" {
		return "starting the agent: " + e.Text
	}
	return "starting " + e.Path + ": " + e.Text
}
