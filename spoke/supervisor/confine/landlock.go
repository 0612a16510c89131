package confine

import (
	"syscall"
	"unsafe"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/plain"
)

// Of landlock(7). The numbers of the calls are the same on all machines.
const (
	sysLandlockCreate = 444
	sysLandlockAdd    = 445
	sysOpenat2        = 437

	versionFlag   = 1
	rulePath      = 1
	rulePort      = 2
	accessBind    = 1 << 0
	accessConnect = 1 << 1
	scopeAbstract = 1 << 0
	scopeSignal   = 1 << 1

	oPath      = 0x200000
	noSymlinks = 4 // RESOLVE_NO_SYMLINKS of openat2(2)
)

// The rights of a path.
const (
	execute = 1 << iota
	writeFile
	readFile
	readDir
	removeDir
	removeFile
	makeChar
	makeDir
	makeReg
	makeSock
	makeFifo
	makeBlock
	makeSym
	refer    // ABI 2
	truncate // ABI 3
	ioctlDev // ABI 5

	readOnly = execute | readFile | readDir
	ofFile   = execute | writeFile | readFile | truncate | ioctlDev // what a rule on a file may grant
)

// Rules are what a program may reach; the rest of what this kernel can refuse is refused.
type Rules struct {
	Read, Write []string // paths without symbolic links; one that is not there, or goes by one, is left out
	AnyPort     bool
	Ports       []int64 // TCP ports that may be connected to
}

// ABI is the version of Landlock that the kernel has in force, 0 without it.
func ABI() int {
	v, _, errno := syscall.RawSyscall(sysLandlockCreate, 0, 0, versionFlag)
	if errno != 0 {
		return 0
	}
	return int(v)
}

// rulesetAttr is struct landlock_ruleset_attr.
type rulesetAttr struct{ fs, net, scoped uint64 }

// handled is what an ABI can refuse.
func handled(abi int, anyPort bool) (attr rulesetAttr, size uintptr) {
	attr.fs, size = refer-1, 8
	for version, right := range map[int]uint64{2: refer, 3: truncate, 5: ioctlDev} {
		if abi >= version {
			attr.fs |= right
		}
	}
	if abi >= 4 {
		size = 16
		if !anyPort {
			attr.net = accessBind | accessConnect
		}
	}
	if abi >= 6 {
		attr.scoped, size = scopeAbstract|scopeSignal, 24
	}
	return attr, size
}

// Open returns the descriptor of a ruleset.
func (r Rules) Open() (int, error) {
	abi := ABI()
	if abi == 0 {
		return -1, plain.Wrap("making Landlock rules", syscall.EOPNOTSUPP)
	}
	attr, size := handled(abi, r.AnyPort)
	fd, _, errno := syscall.RawSyscall(sysLandlockCreate, uintptr(unsafe.Pointer(&attr)), size, 0)
	if errno != 0 {
		return -1, plain.Wrap("making Landlock rules", errno)
	}
	if err := r.fill(int(fd), attr); err != nil {
		_ = syscall.Close(int(fd))
		return -1, err
	}
	return int(fd), nil
}

func (r Rules) fill(fd int, attr rulesetAttr) error {
	for _, path := range r.Read {
		if err := addPath(fd, path, attr.fs&readOnly); err != nil {
			return err
		}
	}
	for _, path := range r.Write {
		if err := addPath(fd, path, attr.fs); err != nil {
			return err
		}
	}
	if attr.net == 0 {
		return nil
	}
	if err := addPort(fd, 0, accessBind); err != nil { // a port that the kernel chooses
		return err
	}
	for _, port := range r.Ports {
		if err := addPort(fd, uint64(port), accessConnect); err != nil {
			return err
		}
	}
	return nil
}

// own begins the links that nobody can change: to what this process executes, also where the way
// there is closed, and to what it was started with.
const own = "/proc/self/"

// openExactly opens what has this path and no other: an agent that writes to the directory above
// could put a symbolic link in its place after it was judged.
func openExactly(path string) (int, error) {
	name, err := syscall.BytePtrFromString(path)
	if err != nil {
		return -1, err
	}
	how := struct{ flags, mode, resolve uint64 }{oPath | syscall.O_CLOEXEC, 0, noSymlinks}
	if _, ok := plain.CutPrefix(path, own); ok {
		how.resolve = 0
	}
	for {
		fd, _, errno := syscall.RawSyscall6(sysOpenat2, ^uintptr(99), uintptr(unsafe.Pointer(name)), uintptr(unsafe.Pointer(&how)), unsafe.Sizeof(how), 0, 0)
		switch errno {
		case 0:
			return int(fd), nil
		case syscall.EINTR, syscall.EAGAIN: // EAGAIN: something was moved meanwhile
			continue
		}
		return -1, errno
	}
}

// addPath grants rights below a path. It is struct landlock_path_beneath_attr, which is packed.
func addPath(ruleset int, path string, rights uint64) error {
	fd, err := openExactly(path)
	switch err {
	case nil:
	case syscall.ENOENT, syscall.ENOTDIR, syscall.EACCES, syscall.ELOOP:
		return nil // what is not there, or closed to us, is so to the agent
	default:
		return plain.Wrap("allowing "+path, err)
	}
	defer syscall.Close(fd)
	var st syscall.Stat_t
	if err := syscall.Fstat(fd, &st); err != nil {
		return plain.Wrap("allowing "+path, err)
	}
	if st.Mode&syscall.S_IFMT != syscall.S_IFDIR {
		rights &= ofFile
	}
	var rule [12]byte
	*(*uint64)(unsafe.Pointer(&rule[0])) = rights
	*(*int32)(unsafe.Pointer(&rule[8])) = int32(fd)
	_, _, errno := syscall.RawSyscall6(sysLandlockAdd, uintptr(ruleset), rulePath, uintptr(unsafe.Pointer(&rule[0])), 0, 0, 0)
	if errno != 0 {
		return plain.Wrap("allowing "+path, errno)
	}
	return nil
}

func addPort(ruleset int, port, rights uint64) error {
	rule := struct{ rights, port uint64 }{rights, port}
	_, _, errno := syscall.RawSyscall6(sysLandlockAdd, uintptr(ruleset), rulePort, uintptr(unsafe.Pointer(&rule)), 0, 0, 0)
	if errno != 0 {
		return plain.Wrap("allowing a port", errno)
	}
	return nil
}
