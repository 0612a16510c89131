package attempt

import (
	"math"
	"syscall"
	"time"
	"unsafe"
)

// An Instant is a point on this host's CLOCK_BOOTTIME in nanoseconds. The
// clock never jumps and counts the time a machine sleeps; it means nothing on
// another host or after a restart. The zero Instant stands for "never".
type Instant int64

// Clocks of clock_gettime(2).
const (
	clockMonotonic = 1 // CLOCK_MONOTONIC, which stands still while the machine sleeps
	clockBoottime  = 7 // CLOCK_BOOTTIME
)

// Boottime returns the present instant.
func Boottime() Instant { return read(clockBoottime) }

// Slept returns how long this machine has slept since it started. Only the difference of two of them counts.
func Slept() time.Duration {
	awake := read(clockMonotonic)
	return Boottime().Sub(awake)
}

func read(clock uintptr) Instant {
	var ts syscall.Timespec
	// The call has no failure for a clock every kernel since 2.6.39 has.
	_, _, _ = syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clock, uintptr(unsafe.Pointer(&ts)), 0)
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
