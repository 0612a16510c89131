package shim

import (
	"cmp"
	"os"
	"strconv"
	"syscall"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor/confine"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor/plain"
)

// Of prctl(2) and setrlimit(2), as far as package syscall has no name for them on every machine.
const (
	setDumpable       = 4  // PR_SET_DUMPABLE
	setChildSubreaper = 36 // PR_SET_CHILD_SUBREAPER
	rlimitCore        = 4  // RLIMIT_CORE
	rlimitNproc       = 6  // RLIMIT_NPROC
	rlimitMsgqueue    = 12 // RLIMIT_MSGQUEUE
	rlimitNofile      = 7  // RLIMIT_NOFILE
	rlimitFsize       = 1  // RLIMIT_FSIZE
)

// openFiles is how many files an agent may have open unless it asks for more.
const openFiles = 1024

// userProcesses is how many processes and threads a user of its own may have unless it is
// limited to less: an agent that goes wrong leaves some to the others of the host.
const userProcesses = 8192

// guard protects the shim from its agent, and sets what that inherits.
func guard() error {
	for _, err := range []error{
		prctl(setChildSubreaper, 1),
		syscall.Setrlimit(rlimitCore, &syscall.Rlimit{}),
		// The agent may have the same user: keep it from reading our memory.
		prctl(setDumpable, 0),
		closeInherited(),
	} {
		if err != nil {
			return plain.Wrap("guarding the shim", err)
		}
	}
	syscall.Umask(0o077)
	return nil
}

// limits are what the agent may take by itself. The number of processes counts all that
// a user has, so it holds for one that has nothing else.
func (s *shim) limits() ([]confine.Limit, error) {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(rlimitNofile, &files); err != nil {
		return nil, plain.Wrap("reading the limit of open files", err)
	}
	list := []confine.Limit{{Resource: rlimitNofile, Soft: min(openFiles, files.Max), Max: files.Max}}
	if n := min(uint64(s.Limits.Files), files.Max); n > 0 {
		list[0] = confine.Limit{Resource: rlimitNofile, Soft: n, Max: n}
	}
	if n := uint64(s.Limits.FileSize); n > 0 {
		list = append(list, confine.Limit{Resource: rlimitFsize, Soft: n, Max: n})
	}
	if most := s.mostProcesses(); most > 0 {
		pids := uint64(most)
		list = append(list, confine.Limit{Resource: rlimitNproc, Soft: pids, Max: pids},
			confine.Limit{Resource: rlimitMsgqueue}) // a message queue would be found by the next agent with the user
	}
	return list, nil
}

// mostProcesses is how many processes and threads the kernel lets the agent's user have; 0 where
// it has none of its own.
func (s *shim) mostProcesses() int64 {
	if s.Confine.User.ID == 0 {
		return 0
	}
	return cmp.Or(s.Limits.Pids, userProcesses)
}

// ruleset opens the agent's Landlock rules; -1 = it has none.
func (s *shim) ruleset() (int, error) {
	c := s.Confine
	if !c.Landlock {
		return -1, nil
	}
	return confine.Rules{Read: c.Read, Write: c.Write, AnyPort: c.AnyPort, Ports: c.Ports}.Open()
}

func prctl(option, value uintptr) error {
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, option, value, 0, 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// closeInherited closes what the spoke had from its own parent and passed on
// unknowingly. Whatever this process opened itself is closed on exec; what is
// not has come through one. Descriptors 0 to 2 are replaced in the agent.
func closeInherited() error {
	dir, err := os.Open("/proc/self/fd")
	if err != nil {
		return err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, fd := range []int{attempt.SpokeFd, attempt.DirFd, attempt.ProgramFd} {
		syscall.CloseOnExec(fd)
	}
	for _, name := range names {
		fd, err := strconv.Atoi(name)
		if err != nil || fd <= 2 {
			continue
		}
		flags, _, errno := syscall.RawSyscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_GETFD, 0)
		if errno == 0 && flags&syscall.FD_CLOEXEC == 0 {
			_ = syscall.Close(fd)
		}
	}
	return nil
}
