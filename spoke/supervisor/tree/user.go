package tree

import (
	"os"
	"runtime"
	"strconv"
	"syscall"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor/plain"
)

// As says that all of the tree, and nothing else on this host, runs as a user: then nothing
// of it can hide. The zero User changes nothing.
func (t *Tree) As(user attempt.User) *Tree {
	t.user = user
	return t
}

// killUser ends all that runs as the user in one step of the kernel's, what is being forked
// too. A thread of this process becomes the user by its effective id for that, and ends; its
// other ids are those of the reaper, so that nothing of the user may signal it.
func killUser(user attempt.User) error {
	if user.ID == 0 || user.Reaper == 0 {
		return nil
	}
	_, err := signalAll(user, syscall.SIGKILL)
	return plain.Wrap("killing all of user "+strconv.FormatInt(user.ID, 10), err)
}

// Any reports whether a process has the user, be it one that has ended and was not waited for.
func Any(user attempt.User) (bool, error) {
	found, err := signalAll(user, 0)
	return found, plain.Wrap("looking for processes of user "+strconv.FormatInt(user.ID, 10), err)
}

// signalAll signals all that runs as the user, and reports whether there was anything.
func signalAll(user attempt.User, sig syscall.Signal) (found bool, err error) {
	done := make(chan struct{})
	go onLostThread(func() {
		found, err = signalAllAs(user, sig)
		close(done)
	})
	<-done
	return found, err
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

func signalAllAs(user attempt.User, sig syscall.Signal) (bool, error) {
	if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, uintptr(user.Reaper), uintptr(user.ID), uintptr(user.Reaper)); errno != 0 {
		return false, plain.Wrap("becoming it", errno)
	}
	everyone := -1
	_, _, errno := syscall.RawSyscall(syscall.SYS_KILL, uintptr(everyone), uintptr(sig), 0)
	switch errno {
	case 0:
		return true, nil
	case syscall.ESRCH:
		return false, nil
	}
	return false, errno
}

// RunsAs reports whether a process has a user as one of its ids.
func RunsAs(pid int, user int64) bool {
	var buf [2048]byte
	n, err := ReadSmall("/proc/"+strconv.Itoa(pid)+"/status", buf[:])
	if err != nil {
		return false
	}
	for _, line := range plain.Lines(string(buf[:n])) {
		if ids, ok := plain.CutPrefix(line, "Uid:"); ok {
			for _, id := range plain.Fields(ids) {
				if id == strconv.FormatInt(user, 10) {
					return true
				}
			}
			return false
		}
	}
	return false
}
