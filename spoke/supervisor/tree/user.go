package tree

import (
	"cmp"
	"os"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"unsafe"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor/plain"
)

// As says that all of the tree, and nothing else on this host, runs as a user: then nothing
// of it can hide. The zero User changes nothing.
func (t *Tree) As(user attempt.User) *Tree {
	t.user = user
	return t
}

// Former says that the tree may run as a user that it had from an earlier range, where its user is not
// known. Another one may have that user by now: of what runs as it only that is of the tree, and ended, which
// has the marker. The rest may be of it, and is among the survivors.
func (t *Tree) Former(user int64) *Tree {
	t.former = user
	return t
}

func (t *Tree) maybe(pid int) (bool, error) {
	if t.former == 0 {
		return false, nil
	}
	return RunsAs(pid, t.former)
}

// EndUser ends all that runs as the user in one step of the kernel's, what is being forked
// too. A thread of this process becomes the user by its effective id for that, and ends; its
// other ids are those of the reaper, so that nothing of the user may signal it.
func EndUser(user attempt.User) error {
	if user.ID == 0 || user.Reaper == 0 {
		return nil
	}
	done := make(chan error)
	go onLostThread(func() { done <- killAllAs(user) })
	return plain.Wrap("ending all of user "+strconv.FormatInt(user.ID, 10), <-done)
}

// onLostThread runs f on a thread that ends with it. The first thread of a process cannot
// end; while it is held another one is found.
func onLostThread(f func()) {
	runtime.LockOSThread()
	if syscall.Gettid() != os.Getpid() {
		f()
		return // and the thread with it
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		f()
	}()
	<-done
	runtime.UnlockOSThread()
}

func killAllAs(user attempt.User) error {
	if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, uintptr(user.Reaper), uintptr(user.ID), uintptr(user.Reaper)); errno != 0 {
		return plain.Wrap("becoming it", errno)
	}
	if errno := dropCapabilities(); errno != 0 {
		return plain.Wrap("dropping capabilities", errno)
	}
	everyone := -1
	// It says no error either where nothing has the user.
	if _, _, errno := syscall.RawSyscall(syscall.SYS_KILL, uintptr(everyone), uintptr(syscall.SIGKILL), 0); errno != 0 && errno != syscall.ESRCH {
		return errno
	}
	return nil
}

// dropCapabilities takes all capabilities from this thread. A change of the user takes them too, unless
// its process was started with the securebit no_setuid_fixup: with CAP_KILL a signal to everyone would
// end this host.
func dropCapabilities() syscall.Errno {
	const version3 = 0x20080522
	header := struct{ version, pid uint32 }{version3, 0}
	var none [2]struct{ effective, permitted, inheritable uint32 }
	_, _, errno := syscall.RawSyscall(syscall.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&none[0])), 0)
	return errno
}

// Of keyctl(2).
const (
	keyctlClear       = 7
	keyctlPersistent  = 22
	processKeyring    = -2
	userKeyring       = -4
	userSession       = -5
	keysOfTheCallerID = -1
)

// ClearKeys empties the keyrings that the kernel keeps for a user. Nothing runs as it.
func ClearKeys(user attempt.User) error {
	done := make(chan error)
	go onLostThread(func() { done <- clearKeysAs(user) })
	return plain.Wrap("emptying the keyrings of user "+strconv.FormatInt(user.ID, 10), <-done)
}

func clearKeysAs(user attempt.User) error {
	id := uintptr(user.ID)
	if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, id, id, id); errno != 0 {
		return plain.Wrap("becoming it", errno)
	}
	rings := []int{userKeyring, userSession}
	mine, in := keysOfTheCallerID, processKeyring
	if ring, _, errno := syscall.RawSyscall(syscall.SYS_KEYCTL, keyctlPersistent, uintptr(mine), uintptr(in)); errno == 0 {
		rings = append(rings, int(ring))
	}
	for _, ring := range rings {
		_, _, errno := syscall.RawSyscall(syscall.SYS_KEYCTL, keyctlClear, uintptr(ring), 0)
		if errno != 0 && errno != syscall.ENOSYS && errno != syscall.EPERM && errno != syscall.ENOKEY { // a sandbox without keyrings
			return errno
		}
	}
	return nil
}

// RunningUsers are the users from first to last that a live process of this host has among
// its ids.
func RunningUsers(first, last int64) (map[int64]bool, error) {
	running := map[int64]bool{}
	_, err := EachProcess(func(p Process) error {
		if p.Gone() {
			return nil
		}
		users, err := usersOf(p.Pid)
		for _, id := range users {
			if first <= id && id <= last {
				running[id] = true
			}
		}
		return err
	})
	return running, err
}

// AnyUser is a user that a live process of this host has among its ids and of which is says so; 0 = there is none.
func AnyUser(is func(user int64) bool) (user int64, err error) {
	err = untilFound(func() bool { return user != 0 }, func(p Process) error {
		if p.Gone() || user != 0 {
			return nil
		}
		users, err := usersOf(p.Pid)
		if at := slices.IndexFunc(users, is); at >= 0 {
			user = users[at]
		}
		return err
	})
	return user, err
}

// UsersBelow are the users that what descends from a process has among its ids.
func UsersBelow(pid int) (map[int64]bool, error) {
	below, err := New("", pid, nil).Find(false)
	running := map[int64]bool{}
	for _, p := range below {
		users, fault := usersOf(p.Pid)
		err = cmp.Or(err, fault)
		for _, id := range users {
			running[id] = true
		}
	}
	return running, err
}

// RunsAs reports whether a process has a user as one of its ids. An error is a fault of this host.
func RunsAs(pid int, user int64) (bool, error) {
	users, err := usersOf(pid)
	return slices.Contains(users, user), err
}

// usersOf lists the real, effective, saved and file system user of a process, none when it is
// gone. An error is a fault of this host.
func usersOf(pid int) (users []int64, err error) {
	var buf [2048]byte
	n, err := ReadSmall("/proc/"+strconv.Itoa(pid)+"/status", buf[:])
	if err != nil {
		return nil, faultOnly(err)
	}
	for _, line := range plain.Lines(string(buf[:n])) {
		ids, ok := plain.CutPrefix(line, "Uid:")
		if !ok {
			continue
		}
		for _, id := range plain.Fields(ids) {
			if n, err := strconv.ParseInt(id, 10, 64); err == nil {
				users = append(users, n)
			}
		}
		break
	}
	return users, nil
}
