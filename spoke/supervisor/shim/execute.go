package shim

import (
	"errors"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor/plain"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor/tree"
)

// execute starts the agent, in a cgroup where that can be done.
func (s *shim) execute() *attempt.StartError {
	fault := func(err error) *attempt.StartError {
		return &attempt.StartError{Reason: attempt.HostFault, Text: err.Error()}
	}
	var fds [2]int
	var err error
	if s.out, fds[0], err = newCapture(string(attempt.Stdout), s.Cap()); err != nil {
		return fault(err)
	}
	defer syscall.Close(fds[0])
	if s.err, fds[1], err = newCapture(string(attempt.Stderr), s.Cap()); err != nil {
		return fault(err)
	}
	defer syscall.Close(fds[1])
	null, err := syscall.Open(os.DevNull, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return fault(plain.Wrap("opening "+os.DevNull, err))
	}
	defer syscall.Close(null)

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
		_ = group.Remove()
		group, groupErr = nil, err
		pid, err = forkInto(nil, s.Argv, attr)
	}
	if err != nil {
		return explain(err, s.Spec)
	}
	if group == nil && s.Limits != (attempt.Limits{}) {
		unlimited = tree.NotEnforced(groupErr.Error())
	}
	level := attempt.LevelTree
	if group != nil {
		level = attempt.LevelCgroup
	}
	s.run = attempt.Running{Pid: pid, StartedAt: time.Now().UTC(), Begun: attempt.Boottime(), Level: level, Unlimited: unlimited, Shim: os.Getpid(), Cgroup: group.Path()}
	s.group, s.tree = group, tree.New(s.Marker, os.Getpid(), group)
	return nil
}

// ownCgroup makes the attempt's group and leaves its name for people to look at.
// Without a group there is the level below. Unlimited says which limits the group
// does not enforce.
func (s *shim) ownCgroup() (group *tree.Group, unlimited string, err error) {
	if s.NoCgroup {
		return nil, "", errors.New("cgroups are left alone")
	}
	group, unlimited, err = tree.NewGroup(s.Marker, s.Limits)
	if err != nil {
		return nil, "", err
	}
	if err := os.Symlink(group.Path(), attempt.CgroupLink); err != nil {
		_ = group.Remove()
		return nil, "", plain.Wrap("noting the cgroup", err)
	}
	return group, unlimited, nil
}

func (s *shim) environment() []string {
	env := slices.DeleteFunc(slices.Clone(s.Env), isMarker)
	return append(env, attempt.MarkerName+"="+s.Marker)
}

func isMarker(entry string) bool {
	_, ok := plain.CutPrefix(entry, attempt.MarkerName+"=")
	return ok
}

// forkInto executes argv in the group from its first instruction on. It
// returns when the exec has succeeded.
func forkInto(group *tree.Group, argv []string, attr *syscall.ProcAttr) (int, error) {
	if group != nil {
		fd, err := group.Open()
		if err != nil {
			return 0, err
		}
		defer syscall.Close(fd)
		sys := *attr.Sys
		sys.UseCgroupFD, sys.CgroupFD = true, fd
		attr = &syscall.ProcAttr{Dir: attr.Dir, Env: attr.Env, Files: attr.Files, Sys: &sys}
	}
	return syscall.ForkExec(argv[0], argv, attr)
}
