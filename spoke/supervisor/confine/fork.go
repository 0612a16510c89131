// Package confine starts a program as a user of its own, restricted by Landlock, or as it
// is, with what is set in the child alone: no thread of the caller is ever restricted, so none
// can be reached from inside.
//
// Under concurrency. Start may be called from any goroutine. The child is killed when the
// thread that started it ends.
//
// Its tests are those of spoke/supervisor and of spoke/isolation.
package confine

import (
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/plain"
)

// A Program is what a child becomes.
type Program struct {
	Argv, Env []string
	Path      string // of Dir, by which its user has to get there
	Dir       int    // descriptor of the working directory
	Files     [3]int // become 0, 1 and 2; each is 3 or higher
	Cgroup    int    // descriptor of the cgroup it is born in; -1 = the caller's
	User      int    // user and group, with no other group and no capability; 0 = the caller's
	Ruleset   int    // descriptor of the Landlock rules; -1 = none
	Limits    []Limit
}

// A Limit is a resource limit of the child (getrlimit(2)), soft and hard.
type Limit struct {
	Resource  int
	Soft, Max uint64
}

// A Failure says at which step a child could not become its program.
type Failure struct {
	Step  Step
	Errno syscall.Errno
}

func (e *Failure) Error() string { return e.Step.String() + ": " + e.Errno.Error() }
func (e *Failure) Unwrap() error { return e.Errno }

// child is all that the child needs, made before the fork: after it nothing may be allocated.
type child struct {
	argv0, path *byte
	argv, env   []*byte
	dir         int
	files       [3]int
	user        uintptr
	ruleset     int
	limits      []Limit
	parent      int
	report      int // where a failure is written; closed by a program that begins
}

// Start returns the process once its program has begun, or a *Failure.
func Start(p Program) (pid int, err error) {
	c, err := prepare(p)
	if err != nil {
		return 0, err
	}
	var pipe [2]int
	syscall.ForkLock.Lock()
	err = syscall.Pipe2(pipe[:], syscall.O_CLOEXEC)
	if err != nil {
		syscall.ForkLock.Unlock()
		return 0, plain.Wrap("making a pipe", err)
	}
	c.report = pipe[1]
	args := cloneArgs{exitSignal: uint64(syscall.SIGCHLD)}
	if p.Cgroup >= 0 {
		args.flags, args.cgroup = cloneIntoCgroup, uint64(p.Cgroup)
	}
	pid, errno := fork(c, &args)
	syscall.ForkLock.Unlock()
	runtime.KeepAlive(c)
	_ = syscall.Close(pipe[1])
	if errno != 0 {
		_ = syscall.Close(pipe[0])
		return 0, &Failure{stepFork, errno}
	}
	return pid, await(pid, pipe[0])
}

func prepare(p Program) (*child, error) {
	c := &child{dir: p.Dir, files: p.Files, user: uintptr(p.User), ruleset: p.Ruleset, limits: p.Limits, parent: os.Getpid()}
	var err error
	if c.argv0, err = syscall.BytePtrFromString(p.Argv[0]); err != nil {
		return nil, err
	}
	if c.path, err = syscall.BytePtrFromString(p.Path); err != nil {
		return nil, err
	}
	if c.argv, err = syscall.SlicePtrFromStrings(p.Argv); err != nil {
		return nil, err
	}
	c.env, err = syscall.SlicePtrFromStrings(p.Env)
	return c, err
}

// await reads what the child says. One that says nothing has begun its program.
func await(pid, pipe int) error {
	defer syscall.Close(pipe)
	var said [2]uint32
	for {
		n, err := syscall.Read(pipe, unsafe.Slice((*byte)(unsafe.Pointer(&said[0])), unsafe.Sizeof(said)))
		switch {
		case err == syscall.EINTR:
			continue
		case err == nil && n == 0:
			return nil
		}
		var status syscall.WaitStatus
		for {
			if _, waited := syscall.Wait4(pid, &status, 0, nil); waited != syscall.EINTR {
				break
			}
		}
		if err != nil {
			return plain.Wrap("reading how a child began", err)
		}
		return &Failure{Step(said[0]), syscall.Errno(said[1])}
	}
}
