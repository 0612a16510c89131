package attempt

// A Breach is the limit that ended an attempt, and by how much it was missed.
type Breach struct {
	Limit    LimitName `json:"limit"`
	Unit     Unit      `json:"unit"`
	Allowed  int64     `json:"allowed"`
	Measured int64     `json:"measured"`
}

// A LimitName names a limit that can end an attempt. Names are stored, so none is ever
// renamed; the reasons of a task on the wire are the same.
type LimitName string

// The limits that can end an attempt.
const (
	DeadlineElapsed LimitName = "deadline_elapsed" // Spec.Timeout
	IdleTimeout     LimitName = "idle_timeout"     // Limits.Idle
	OOMKilled       LimitName = "oom_killed"       // Limits.Memory
	CPULimit        LimitName = "cpu_limit"        // Limits.CPU
	ProcessLimit    LimitName = "process_limit"    // Limits.Pids
	DiskLimit       LimitName = "disk_limit"       // Limits.Disk, Limits.Inodes, Limits.FileSize
	OutputLimit     LimitName = "output_limit"     // Limits.Written
)

// LimitNames lists them.
var LimitNames = []LimitName{DeadlineElapsed, IdleTimeout, OOMKilled, CPULimit, ProcessLimit, DiskLimit, OutputLimit}

// A Unit is what a limit is counted in.
type Unit string

// The units of limits.
const (
	Milliseconds Unit = "ms"
	Bytes        Unit = "bytes"
	Inodes       Unit = "inodes"
	Levels       Unit = "levels" // of directories
	Processes    Unit = "processes"
)

// Units lists them.
var Units = []Unit{Milliseconds, Bytes, Inodes, Levels, Processes}
