package supervisor

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// execute starts the agent, in a cgroup where that can be done.
func (s *shim) execute() *StartError {
	fault := func(err error) *StartError { return &StartError{Reason: HostFault, Text: err.Error()} }
	var fds [2]int
	var err error
	if s.out, fds[0], err = newCapture(string(Stdout), s.outputCap()); err != nil {
		return fault(err)
	}
	defer unix.Close(fds[0])
	if s.err, fds[1], err = newCapture(string(Stderr), s.outputCap()); err != nil {
		return fault(err)
	}
	defer unix.Close(fds[1])
	null, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fault(fmt.Errorf("opening %s: %w", os.DevNull, err))
	}
	defer unix.Close(null)

	attr := &syscall.ProcAttr{
		Dir:   s.Dir,
		Env:   s.environment(),
		Files: []uintptr{uintptr(null), uintptr(fds[0]), uintptr(fds[1])},
		Sys:   &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL},
	}
	group, unlimited, groupErr := s.ownCgroup()
	pid, err := forkInto(group, s.Argv, attr)
	if err != nil && group != nil {
		// It may be the group that cannot be used: the error does not tell.
		_ = group.remove()
		group, groupErr = nil, err
		pid, err = forkInto(nil, s.Argv, attr)
	}
	if err != nil {
		return explain(err, s.Spec)
	}
	if group == nil && s.Limits != (Limits{}) {
		unlimited = notEnforced(groupErr.Error())
	}
	s.run = running{Pid: pid, StartedAt: time.Now().UTC(), Begun: Boottime(), Level: levelOf(group), Unlimited: unlimited, Shim: os.Getpid(), Cgroup: group.name()}
	s.tree = newTree(s.Marker, os.Getpid(), group)
	return nil
}

// ownCgroup makes the attempt's group and leaves its name for people to look at.
// Without a group there is the level below. Unlimited says which limits the group
// does not enforce.
func (s *shim) ownCgroup() (group *cgroup, unlimited string, err error) {
	if s.NoCgroup {
		return nil, "", errors.New("cgroups are left alone")
	}
	group, unlimited, err = newCgroup(s.Marker, s.Limits)
	if err != nil {
		return nil, "", err
	}
	if err := os.Symlink(group.path, cgroupLink); err != nil {
		_ = group.remove()
		return nil, "", fmt.Errorf("noting the cgroup: %w", err)
	}
	return group, unlimited, nil
}

func (s *shim) environment() []string {
	env := slices.DeleteFunc(slices.Clone(s.Env), func(e string) bool { return strings.HasPrefix(e, MarkerName+"=") })
	return append(env, MarkerName+"="+s.Marker)
}

// forkInto executes argv in the group from its first instruction on. It
// returns when the exec has succeeded.
func forkInto(group *cgroup, argv []string, attr *syscall.ProcAttr) (int, error) {
	if group != nil {
		fd, err := group.open()
		if err != nil {
			return 0, err
		}
		defer unix.Close(fd)
		sys := *attr.Sys
		sys.UseCgroupFD, sys.CgroupFD = true, fd
		attr = &syscall.ProcAttr{Dir: attr.Dir, Env: attr.Env, Files: attr.Files, Sys: &sys}
	}
	return syscall.ForkExec(argv[0], argv, attr)
}

// explain finds out which of the things an errno can mean it was.
func explain(err error, spec Spec) *StartError {
	program := spec.Argv[0]
	if info, statErr := os.Stat(spec.Dir); statErr != nil || !info.IsDir() || unix.Access(spec.Dir, unix.X_OK) != nil {
		if statErr == nil {
			statErr = err
		}
		return &StartError{BadDirectory, spec.Dir, "the working directory cannot be entered: " + errnoText(statErr)}
	}
	info, statErr := os.Stat(program)
	text := errnoText(err)
	switch {
	case errors.Is(err, unix.ENOENT) && statErr != nil:
		return &StartError{NotFound, program, text + "; install it on this host or correct the command"}
	case errors.Is(err, unix.ENOENT):
		return &StartError{BadShebang, program, text + ": the interpreter its first line or its header names is not installed"}
	case errors.Is(err, unix.ELOOP):
		return &StartError{ShebangLoop, program, text + ": follow its links, or the interpreters of the script"}
	case errors.Is(err, unix.EACCES) && statErr == nil && info.IsDir():
		return &StartError{IsDirectory, program, text + ": it is a directory"}
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return &StartError{NotExecutable, program, text + "; make it executable for the user the spoke runs as"}
	case errors.Is(err, unix.ENOEXEC):
		return &StartError{BadFormat, program, text + "; a script needs a first line such as #!/bin/sh"}
	case errors.Is(err, unix.E2BIG):
		return &StartError{TooLong, program, text + "; pass large inputs in a file"}
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ENOMEM), errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		return &StartError{NoResources, program, text + "; this host has no room for another process now"}
	}
	return &StartError{HostFault, program, text}
}

// errnoText is the system's own wording, without the call it came from.
func errnoText(err error) string {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno.Error()
	}
	return err.Error()
}
