// Package attempt is what a spoke and the shims of its agents share: what is to
// be run, how it ended, the files of an attempt, and the messages between the two.
//
// A shim is to be one before the rest of its program is initialised, so this
// package imports os and what os imports, and nothing of fmt, net, encoding or
// crypto. What only a spoke does, such as reading a record, is package supervisor's.
//
// The directory of an attempt may be its agent's to write: every file of it is
// opened as one that somebody else has put there.
package attempt

import "time"

// MarkerName is the environment variable that marks every process of an
// attempt's tree as part of it. Only the supervisor sets it.
const MarkerName = "SPAWNMESH_MARKER"

// A program is a shim when its first argument is ShimArg and two more follow:
// the directory of the attempt, as seen from where it runs, and its marker. With
// ProbeArg alone it is there to be killed.
const (
	ShimArg  = "_shim"
	ProbeArg = "-probe"
)

// SpokeFd is the shim's end of the socket pair with the spoke that starts it.
const SpokeFd = 3

// What a shim is started with as well, opened by its spoke: the agent's working directory, and its program where that was
// named by its path.
const (
	DirFd     = 4
	ProgramFd = 5
)

// OpenedDir and OpenedProgram name the same among the paths of a [Confine], and in its Wrap, where each stands for the number
// of a descriptor of its own: what was opened, whatever is at its path by then.
const (
	OpenedDir     = "/proc/self/fd/4"
	OpenedProgram = "/proc/self/fd/5"
)

// The files of an attempt directory. All are 0600 in a directory of 0700.
const (
	SpecFile      = "spec.json" // what was asked for, for people to look at, and the secret; written before the shim starts
	LockFile      = "lock"      // held by flock: the shim is alive
	TombstoneFile = "tombstone" // no shim may start here any more
	SocketFile    = "sock"
	ExitFile      = "exit.json"
	CgroupLink    = "cgroup"   // symbolic link to the attempt's cgroup
	ShimErrFile   = "shim.err" // what the shim itself had to say
)

const draftSuffix = ".tmp" // of a file that is to replace the one without it

// An Attempt is what a spoke hands to the shim that it starts.
type Attempt struct {
	Spec
	// Token proves both ends of the socket to each other. Whoever can read
	// the directory has it, and nobody else.
	Token string `json:"token"`
}

// Secret is what both ends of the socket know. It differs for every attempt, also
// where an agent has copied the token of another one.
func (a Attempt) Secret() string { return a.Token + " " + a.Marker }

// ValidMarker guards the one place where text becomes the name of a cgroup.
func ValidMarker(s string) bool {
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return len(s) == 32
}

// The levels of how completely an agent can be ended: the kernel ends a whole
// cgroup at once, or the shim has to find the processes itself.
const (
	LevelCgroup = "cgroup"
	LevelTree   = "tree"
)

const (
	// KillPatience is how long after the grace a kill has to succeed before the
	// survivors are reported.
	KillPatience = 5 * time.Second
	// KillRetry is the pause between kills while there are survivors.
	KillRetry = 10 * time.Second
)
