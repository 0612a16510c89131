package shim

import (
	"errors"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor/confine"
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
	s.out.hide, s.err.hide = newRedactor(s.Secrets), newRedactor(s.Secrets)
	input, err := takeStdin()
	if err != nil {
		return fault(err)
	}
	defer syscall.Close(input)

	if err := s.giveOutput(fds); err != nil {
		return fault(err)
	}
	rules, err := s.ruleset()
	if err != nil {
		return fault(err)
	}
	defer closeRules(rules)
	limits, err := s.limits()
	if err != nil {
		return fault(err)
	}
	wrap, letGo, err := s.wrap()
	defer letGo()
	if err != nil {
		return fault(err)
	}
	program := confine.Program{
		Argv: slices.Concat(wrap, s.Argv), Env: s.environment(), Path: s.Dir, Dir: attempt.DirFd, Files: [3]int{input, fds[0], fds[1]}, Cgroup: -1,
		User: int(s.Confine.User.ID), Ruleset: rules, Limits: limits,
	}
	group, missing, groupErr := s.ownCgroup()
	pid, err := startIn(group, program)
	if err != nil && group != nil {
		// It may be the group that cannot be used: the error does not tell.
		_ = group.Remove()
		group, groupErr = nil, err
		pid, err = startIn(nil, program)
	}
	if err != nil {
		return explain(err, s.Spec)
	}
	if group == nil {
		missing = tree.Unheld(s.Limits, groupErr)
	}
	level := attempt.LevelTree
	if group != nil {
		level = attempt.LevelCgroup
	}
	s.run = attempt.Running{Pid: pid, StartedAt: time.Now().UTC(), Begun: attempt.Boottime(), Level: level, Unlimited: s.held(missing), Shim: os.Getpid(), Cgroup: group.Path()}
	s.group, s.tree = group, tree.New(s.Marker, os.Getpid(), group).As(s.Confine.User)
	return nil
}

// ownCgroup makes the attempt's group and leaves its name for people to look at.
// Without a group there is the level below. Missing are the limits that the group
// does not hold.
func (s *shim) ownCgroup() (group *tree.Group, missing []tree.Missing, err error) {
	if s.NoCgroup {
		return nil, nil, errors.New("cgroups are left alone")
	}
	group, missing, err = tree.NewGroup(s.Marker, s.Limits)
	if err != nil {
		return nil, nil, err
	}
	if err := os.Symlink(group.Path(), attempt.CgroupLink); err != nil {
		_ = group.Remove()
		return nil, nil, plain.Wrap("noting the cgroup", err)
	}
	return group, missing, nil
}

func (s *shim) environment() []string {
	env := slices.DeleteFunc(slices.Clone(s.Env), isMarker)
	return append(env, attempt.MarkerName+"="+s.Marker)
}

func isMarker(entry string) bool {
	_, ok := plain.CutPrefix(entry, attempt.MarkerName+"=")
	return ok
}

// giveOutput makes the pipes the agent's own: it may open them by their names, such as
// /dev/stdout.
func (s *shim) giveOutput(fds [2]int) error {
	user := int(s.Confine.User.ID)
	if user == 0 {
		return nil
	}
	return plain.Wrap("giving the agent its output", errors.Join(syscall.Fchown(fds[0], user, user), syscall.Fchown(fds[1], user, user)))
}

// wrap is what the agent is wrapped in, with descriptors in the place of what stands for them. They are inherited, until
// they are let go.
func (s *shim) wrap() (wrap []string, letGo func(), err error) {
	var fds []int
	letGo = func() {
		for _, fd := range fds {
			_ = syscall.Close(fd)
		}
	}
	opened := map[string]uintptr{attempt.OpenedDir: attempt.DirFd, attempt.OpenedProgram: attempt.ProgramFd}
	wrap = slices.Clone(s.Confine.Wrap)
	for i, arg := range wrap {
		if from, ok := opened[arg]; ok {
			fd, _, errno := syscall.Syscall(syscall.SYS_FCNTL, from, syscall.F_DUPFD, attempt.ProgramFd+1)
			if errno != 0 {
				return nil, letGo, plain.Wrap("handing on "+arg, errno)
			}
			fds, wrap[i] = append(fds, int(fd)), strconv.Itoa(int(fd))
		}
	}
	return wrap, letGo, nil
}

func closeRules(fd int) {
	if fd >= 0 {
		_ = syscall.Close(fd)
	}
}

// startIn starts a program in the group from its first instruction on. It
// returns when the program has begun.
func startIn(group *tree.Group, p confine.Program) (int, error) {
	if group != nil {
		fd, err := group.Open()
		if err != nil {
			return 0, err
		}
		defer syscall.Close(fd)
		p.Cgroup = fd
	}
	return confine.Start(p)
}

// takeStdin returns what the spoke has started the shim with as its standard input, for the agent.
func takeStdin() (int, error) {
	fd, _, errno := syscall.Syscall(syscall.SYS_FCNTL, 0, syscall.F_DUPFD_CLOEXEC, 3)
	if errno != 0 {
		return -1, plain.Wrap("taking the standard input", errno)
	}
	return int(fd), nil
}
