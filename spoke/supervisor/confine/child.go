package confine

import (
	"syscall"
	"unsafe"
)

// cloneArgs is struct clone_args of clone3(2).
type cloneArgs struct {
	flags, pidFd, childTid, parentTid, exitSignal, stack, stackSize, tls, setTid, setTidSize, cgroup uint64
}

const (
	sysClone3       = 435
	cloneIntoCgroup = 0x200000000

	setPdeathsig   = 1  // of prctl(2)
	setNoNewPrivs  = 38 // of prctl(2)
	dropBounding   = 24 // of prctl(2): PR_CAPBSET_DROP
	ambient        = 47 // of prctl(2): PR_CAP_AMBIENT
	ambientClear   = 4  // PR_CAP_AMBIENT_CLEAR_ALL
	joinKeyring    = 1  // of keyctl(2): KEYCTL_JOIN_SESSION_KEYRING
	lastCapability = 63

	sysLandlockRestrict = 446
)

// A Step is one on a child's way to its program. The order is that in which they are taken.
type Step uint32

// The steps.
const (
	stepFork Step = iota
	stepSession
	stepFiles
	stepCapabilities
	stepUser
	stepKeyring
	stepLimits
	stepParent
	StepDir // the working directory could not be entered
	stepLandlock
	StepExec // the program could not be executed
)

var steps = [...]string{"forking", "making a session", "setting up the descriptors", "dropping capabilities", "changing the user", "making a keyring",
	"setting limits", "binding it to its shim", "entering the working directory", "restricting it by Landlock", "executing the program"}

func (s Step) String() string {
	if int(s) < len(steps) {
		return steps[s]
	}
	return "starting it"
}

// What package syscall has around its own fork: signals are blocked, and the child's handlers
// are reset.

//go:linkname beforeFork syscall.runtime_BeforeFork
func beforeFork()

//go:linkname afterFork syscall.runtime_AfterFork
func afterFork()

//go:linkname afterForkInChild syscall.runtime_AfterForkInChild
func afterForkInChild()

// fork makes the child, which never returns from here. It has one thread and a copy of all
// memory: nothing may allocate, lock or grow the stack in it.
//
//go:noinline
//go:norace
func fork(c *child, args *cloneArgs) (pid int, errno syscall.Errno) {
	beforeFork()
	r, _, errno := syscall.RawSyscall(sysClone3, uintptr(unsafe.Pointer(args)), unsafe.Sizeof(*args), 0)
	if errno == syscall.ENOSYS && args.flags == 0 { // a sandbox that does not know clone3
		r, _, errno = syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	}
	if errno != 0 || r != 0 {
		afterFork()
		return int(r), errno
	}
	afterForkInChild()
	step, errno := c.become()
	said := [2]uint32{uint32(step), uint32(errno)}
	_, _, _ = syscall.RawSyscall(syscall.SYS_WRITE, uintptr(c.report), uintptr(unsafe.Pointer(&said[0])), unsafe.Sizeof(said))
	for {
		_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT, 127, 0, 0)
	}
}

// become returns only when it fails.
//
//go:nosplit
//go:norace
func (c *child) become() (Step, syscall.Errno) {
	if _, _, e := syscall.RawSyscall(syscall.SYS_SETSID, 0, 0, 0); e != 0 {
		return stepSession, e
	}
	for to := range c.files {
		if _, _, e := syscall.RawSyscall(syscall.SYS_DUP3, uintptr(c.files[to]), uintptr(to), 0); e != 0 {
			return stepFiles, e
		}
	}
	if e := c.dropCapabilities(); e != 0 {
		return stepCapabilities, e
	}
	if e := c.setUser(); e != 0 {
		return stepUser, e
	}
	// After the change of the user, whose it then is. A sandbox without keyrings has none to inherit.
	if _, _, e := syscall.RawSyscall(syscall.SYS_KEYCTL, joinKeyring, 0, 0); e != 0 && e != syscall.ENOSYS && e != syscall.EPERM {
		return stepKeyring, e
	}
	for i := range c.limits {
		l := &c.limits[i]
		value := [2]uint64{l.Soft, l.Max}
		if _, _, e := syscall.RawSyscall6(syscall.SYS_PRLIMIT64, 0, uintptr(l.Resource), uintptr(unsafe.Pointer(&value[0])), 0, 0, 0); e != 0 {
			return stepLimits, e
		}
	}
	// A change of the user undoes it, so it comes after that; and the parent may have gone before.
	if e := set(setPdeathsig, uintptr(syscall.SIGKILL), 0); e != 0 {
		return stepParent, e
	}
	if r, _, _ := syscall.RawSyscall(syscall.SYS_GETPPID, 0, 0, 0); int(r) != c.parent {
		return stepParent, syscall.ESRCH
	}
	// Its user has to get to the path, and whatever is there by now, it works in what was opened.
	if _, _, e := syscall.RawSyscall(syscall.SYS_CHDIR, uintptr(unsafe.Pointer(c.path)), 0, 0); e != 0 {
		return StepDir, e
	}
	if _, _, e := syscall.RawSyscall(syscall.SYS_FCHDIR, uintptr(c.dir), 0, 0); e != 0 {
		return StepDir, e
	}
	if e := set(setNoNewPrivs, 1, 0); e != 0 {
		return stepCapabilities, e
	}
	if c.ruleset >= 0 {
		if _, _, e := syscall.RawSyscall(sysLandlockRestrict, uintptr(c.ruleset), 0, 0); e != 0 {
			return stepLandlock, e
		}
	}
	_, _, e := syscall.RawSyscall(syscall.SYS_EXECVE, uintptr(unsafe.Pointer(c.argv0)), uintptr(unsafe.Pointer(&c.argv[0])), uintptr(unsafe.Pointer(&c.env[0])))
	return StepExec, e
}

// dropCapabilities empties the bounding set of one who gets a user of its own, so that no
// program gives it any, and the ambient set of everyone.
//
//go:nosplit
//go:norace
func (c *child) dropCapabilities() syscall.Errno {
	if e := set(ambient, ambientClear, 0); e != 0 && e != syscall.EINVAL {
		return e
	}
	for capability := uintptr(0); c.user != 0 && capability <= lastCapability; capability++ {
		if e := set(dropBounding, capability, 0); e == syscall.EINVAL {
			break // the kernel knows no more
		} else if e != 0 {
			return e
		}
	}
	return 0
}

// setUser changes all ids of a user and a group, and leaves no other group. It takes the
// permitted capabilities away.
//
//go:nosplit
//go:norace
func (c *child) setUser() syscall.Errno {
	if c.user == 0 {
		return 0
	}
	if _, _, e := syscall.RawSyscall(syscall.SYS_SETGROUPS, 0, 0, 0); e != 0 {
		return e
	}
	if _, _, e := syscall.RawSyscall(syscall.SYS_SETRESGID, c.user, c.user, c.user); e != 0 {
		return e
	}
	_, _, e := syscall.RawSyscall(syscall.SYS_SETRESUID, c.user, c.user, c.user)
	return e
}

//go:nosplit
//go:norace
func set(option, a, b uintptr) syscall.Errno {
	_, _, e := syscall.RawSyscall6(syscall.SYS_PRCTL, option, a, b, 0, 0, 0)
	return e
}
