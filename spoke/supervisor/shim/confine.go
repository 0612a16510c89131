package shim

import (
	"os"
	"strconv"
	"syscall"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor/plain"
)

// Of prctl(2), as far as package syscall has no name for them on every machine.
const (
	setDumpable       = 4  // PR_SET_DUMPABLE
	setChildSubreaper = 36 // PR_SET_CHILD_SUBREAPER
	setNoNewPrivs     = 38 // PR_SET_NO_NEW_PRIVS
	rlimitCore        = 4  // RLIMIT_CORE
)

// confine sets what the agent inherits. The locked thread is the one that
// starts it, and no_new_privs belongs to a thread.
func confine() error {
	for _, err := range []error{
		prctl(setChildSubreaper, 1),
		prctl(setNoNewPrivs, 1),
		syscall.Setrlimit(rlimitCore, &syscall.Rlimit{}),
		// The agent has the same user: keep it from reading our memory.
		prctl(setDumpable, 0),
		closeInherited(),
	} {
		if err != nil {
			return plain.Wrap("confining the agent", err)
		}
	}
	syscall.Umask(0o077)
	return nil
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
	syscall.CloseOnExec(attempt.SpokeFd)
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
