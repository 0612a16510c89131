package attempt

import (
	"cmp"
	"os"
	"time"
)

// A Spec says what to run and within which bounds. It reaches the shim over a
// socket; the copy in the attempt directory leaves out the environment, which
// may hold credentials, and secrets.
type Spec struct {
	// Marker names the attempt: 32 lower-case hexadecimal digits, never used
	// for another attempt. Empty = one that the directory tells.
	Marker string `json:"marker"`
	// Argv is executed without a shell; Argv[0] is an absolute path.
	Argv []string `json:"argv"`
	// Env is the complete environment as NAME=value; nothing is inherited.
	// SPAWNMESH_MARKER is added.
	Env []string `json:"env,omitempty"`
	// Secrets are texts that are taken out of the output before it is kept. Like the
	// environment they are in no file.
	Secrets []string `json:"secrets,omitempty"`
	// Stdin is what the agent reads as its standard input, which is empty without. It is
	// in no file, and is not sent: the shim is started with it.
	Stdin string `json:"stdin,omitempty"`
	// Dir is the agent's working directory, an absolute path.
	Dir string `json:"dir"`
	// Opened is that directory, and OpenedProgram the program, as the spoke has opened them: [OpenedDir] and the constant OpenedProgram
	// are their names among paths. They are not sent: the shim is started with them. nil = Dir is opened at the start, and no path stands
	// for the program.
	Opened, OpenedProgram *os.File `json:"-"`
	// Timeout ends the tree this long after the start, time asleep included.
	// 0 = never.
	Timeout time.Duration `json:"timeout,omitempty"`
	// Grace is how long the tree has between TERM and KILL when the shim ends
	// it by itself. 0 = 10 s.
	Grace time.Duration `json:"grace,omitempty"`
	// OutputCap is how many bytes of each output stream are kept: the first
	// half in the file as it is written, the last half added at the end.
	// 0 = 16 MiB.
	OutputCap int64 `json:"output_cap,omitempty"`
	// Limits bound what the tree takes, as far as this host can.
	Limits Limits `json:"limits,omitzero"`
	// Counted is where Limits.Disk and Limits.Inodes count.
	Counted Counted `json:"counted,omitzero"`
	// Deadline is when the lease runs out unless Renew moves it. 0 = no lease.
	Deadline Instant `json:"deadline,omitempty"`
	// Slack is how long after the deadline a late renewal still counts.
	// 0 = 3 s.
	Slack time.Duration `json:"slack,omitempty"`
	// Confine bounds what the agent reaches.
	Confine Confine `json:"confine,omitzero"`
	// NoCgroup leaves cgroups alone also where they could be used.
	NoCgroup bool `json:"no_cgroup,omitempty"`
}

// Limits bound what the processes of a tree may take together; 0 = no limit. The kernel
// holds memory, processes and processors by the attempt's cgroup, and the processes of a user
// of its own by that. Where it does not, the shim measures memory and processes several times
// a second and ends the tree that takes more; start and exit say so. They stop an agent that
// goes wrong; a hostile one that has the user who owns the cgroup can raise them.
type Limits struct {
	// Memory is in bytes; the file cache counts, and swap is not used. When it
	// is reached and nothing can be given back, the kernel ends a process of the
	// tree. Measured, it is what the processes have in memory, and all of the tree ends.
	Memory int64 `json:"memory,omitempty"`
	// Pids is how many processes and threads there may be at a time; more
	// cannot be started. Measured, the tree that has more ends.
	Pids int64 `json:"pids,omitempty"`
	// CPU is processor time that is used up, in the kernel too; what has used more ends.
	CPU time.Duration `json:"cpu,omitempty"`
	// CPUs is how many processors are used at a time, in thousandths.
	CPUs int64 `json:"cpus,omitempty"`
	// Disk and Inodes are what the files of Spec.Counted take. They are counted again when they
	// may have become too many, every 2 seconds at most, and the tree that has more ends.
	Disk   int64 `json:"disk,omitempty"`
	Inodes int64 `json:"inodes,omitempty"`
	// FileSize is how long a file can be made, wherever it is.
	FileSize int64 `json:"file_size,omitempty"`
	// Written is how many bytes it may write to each output stream, kept or not.
	Written int64 `json:"written,omitempty"`
	// Idle is how long it may write nothing to both of them, time asleep not included.
	Idle time.Duration `json:"idle,omitempty"`
	// Files is how many files a process may have open. 0 = 1024, which it may raise.
	Files int64 `json:"files,omitempty"`
}

// Counted are directories by absolute paths.
type Counted struct {
	// Dirs are the agent's: all that is in them counts.
	Dirs []string `json:"dirs,omitempty"`
	// Shared are everybody's: there counts what a user of the agent's own has, and what is
	// below that.
	Shared []string `json:"shared,omitempty"`
}

// KillGrace is Grace or its default.
func (s Spec) KillGrace() time.Duration { return cmp.Or(s.Grace, 10*time.Second) }

// LeaseSlack is Slack or its default.
func (s Spec) LeaseSlack() time.Duration { return cmp.Or(s.Slack, 3*time.Second) }

// Cap is OutputCap or its default.
func (s Spec) Cap() int64 { return cmp.Or(s.OutputCap, 16<<20) }

// Longest is how long a shim's file of a stream can be.
func (s Spec) Longest() int64 { return min(s.Cap(), MaxNumber) + NoteRoom }

// LeaseEnd is when the shim ends the tree by itself, or never.
func (s Spec) LeaseEnd() Instant {
	if s.Deadline == 0 {
		return 0
	}
	return s.Deadline.Add(s.LeaseSlack())
}
