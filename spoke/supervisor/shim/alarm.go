package shim

import (
	"os"
	"syscall"
	"unsafe"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor/plain"
)

// Of timerfd_create(2).
const (
	clockBoottime = 7 // CLOCK_BOOTTIME
	absolute      = 1 // TFD_TIMER_ABSTIME
)

// earliest returns the first of the instants that is not "never".
func earliest(instants ...attempt.Instant) attempt.Instant {
	var first attempt.Instant
	for _, i := range instants {
		if i != 0 && (first == 0 || i < first) {
			first = i
		}
	}
	return first
}

// An alarm fires on C at a set instant. Timers of the Go runtime stand still
// while the machine sleeps, and a lease does not.
type alarm struct {
	C  chan struct{}
	fd uintptr
	f  *os.File
}

func newAlarm() (*alarm, error) {
	fd, _, errno := syscall.RawSyscall(syscall.SYS_TIMERFD_CREATE, clockBoottime, syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0)
	if errno != 0 {
		return nil, plain.Wrap("making a timer", errno)
	}
	return &alarm{C: make(chan struct{}, 1), fd: fd, f: os.NewFile(fd, "timer")}, nil
}

// set moves the alarm to at, and off for "never". An instant in the past
// fires at once.
func (a *alarm) set(at attempt.Instant) error {
	spec := [2]syscall.Timespec{1: syscall.NsecToTimespec(int64(at))} // no interval, and when
	_, _, errno := syscall.RawSyscall6(syscall.SYS_TIMERFD_SETTIME, a.fd, absolute, uintptr(unsafe.Pointer(&spec)), 0, 0, 0)
	if errno != 0 {
		return plain.Wrap("setting the timer", errno)
	}
	return nil
}

// run passes expirations on to C until close.
func (a *alarm) run() {
	var expirations [8]byte
	for {
		if _, err := a.f.Read(expirations[:]); err != nil {
			return
		}
		select {
		case a.C <- struct{}{}:
		default: // one is waiting already
		}
	}
}

func (a *alarm) close() error { return a.f.Close() }
