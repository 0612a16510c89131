package supervisor

import (
	"fmt"
	"math"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// An Instant is a point on this host's CLOCK_BOOTTIME in nanoseconds. The
// clock never jumps and counts the time a machine sleeps; it means nothing on
// another host or after a restart. The zero Instant stands for "never".
type Instant int64

// Boottime returns the present instant.
func Boottime() Instant {
	var ts unix.Timespec
	// The call has no failure for a clock every kernel since 2.6.39 has.
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts)
	return Instant(ts.Nano())
}

// Add returns the instant d after i, or the last one there is.
func (i Instant) Add(d time.Duration) Instant {
	if d > 0 && i > math.MaxInt64-Instant(d) {
		return math.MaxInt64
	}
	return i + Instant(d)
}

// Sub returns the time from j to i.
func (i Instant) Sub(j Instant) time.Duration { return time.Duration(i - j) }

// earliest returns the first of the instants that is not "never".
func earliest(instants ...Instant) Instant {
	var first Instant
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
	fd int
	f  *os.File
}

func newAlarm() (*alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("making a timer: %w", err)
	}
	return &alarm{C: make(chan struct{}, 1), fd: fd, f: os.NewFile(uintptr(fd), "timer")}, nil
}

// set moves the alarm to at, and off for "never". An instant in the past
// fires at once.
func (a *alarm) set(at Instant) error {
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(at))}
	if err := unix.TimerfdSettime(a.fd, unix.TFD_TIMER_ABSTIME, &spec, nil); err != nil {
		return fmt.Errorf("setting the timer: %w", err)
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
