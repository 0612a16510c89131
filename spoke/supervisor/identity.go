package supervisor

import (
	"bytes"
	"errors"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// A Shim is what its spoke keeps on record of a shim, in a place that agents do not
// write to: who may answer for the attempt, and where its processes are.
type Shim struct {
	Pid    int    // 0 = not known
	Start  uint64 // when it started, in clock ticks after boot: with Pid one process of this boot
	Cgroup string // path of the attempt's cgroup; "" = none, or not known
}

var (
	errStranger = errors.New("the socket is answered by a process that is not the shim of this attempt")
	errLockHeld = spoilt("the lock is held by a process that is not the shim")
)

// isShim reports whether a process is the shim of the attempt: the one on record, or, of
// one that was not recorded yet, any that was started as its shim.
func (saved savedSpec) isShim(p process) bool {
	if saved.shim.Pid != 0 {
		return p.pid == saved.shim.Pid && p.start == saved.shim.Start && !saved.otherBoot()
	}
	return startedAsShim(p.pid, saved.Marker)
}

// shimGone reports whether the shim on record has ended.
func (saved savedSpec) shimGone() bool {
	if saved.shim.Pid == 0 {
		return false
	}
	p, err := readProcess(saved.shim.Pid)
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) || err == nil && (p.gone() || !saved.isShim(p))
}

// otherBoot reports whether the attempt is one of an earlier run of the kernel.
func (saved savedSpec) otherBoot() bool {
	boot, err := BootID()
	return err == nil && saved.bootID != "" && saved.bootID != boot
}

// killShim ends the shim of an attempt that is to end without it: it lives where its
// agent has taken its lock or its socket away, or where it hangs.
func (saved savedSpec) killShim() error {
	var found []process
	if _, err := eachProcess(func(p process) {
		if !p.gone() && (saved.shim.Pid != 0 || p.pid > 1) && saved.isShim(p) {
			found = append(found, p)
		}
	}); err != nil {
		return err
	}
	for _, p := range found {
		_ = p.signal(unix.SIGKILL)
		for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
			if now, err := readProcess(p.pid); err != nil || now.start != p.start || now.gone() {
				break
			}
		}
	}
	return nil
}

// startedAsShim reports whether a process was executed as the shim with a marker.
func startedAsShim(pid int, marker string) bool {
	var buf [8 << 10]byte // a path has 4 KiB at most
	n, err := readSmall("/proc/"+strconv.Itoa(pid)+"/cmdline", buf[:])
	argv := bytes.Split(buf[:n], []byte{0})
	return err == nil && len(argv) > 3 && string(argv[1]) == shimArg && string(argv[3]) == marker
}
