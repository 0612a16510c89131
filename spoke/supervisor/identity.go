package supervisor

import (
	"errors"
	"syscall"
	"time"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor/tree"
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
	errLockHeld = attempt.Spoilt("the lock is held by a process that is not the shim")
)

// isShim reports whether a process is the shim of the attempt: the one on record, or, of
// one that was not recorded yet, any that was started as its shim.
func (saved savedSpec) isShim(p tree.Process) bool {
	if saved.shim.Pid != 0 {
		return p.Pid == saved.shim.Pid && p.Start == saved.shim.Start && !saved.otherBoot()
	}
	return startedAsShim(p.Pid, saved.Marker)
}

// shimGone reports whether the shim on record has ended.
func (saved savedSpec) shimGone() bool {
	if saved.shim.Pid == 0 {
		return false
	}
	p, err := tree.ReadProcess(saved.shim.Pid)
	return tree.Ended(err) || err == nil && (p.Gone() || !saved.isShim(p))
}

// otherBoot reports whether the attempt is one of an earlier run of the kernel.
func (saved savedSpec) otherBoot() bool {
	boot, err := BootID()
	return err == nil && saved.bootID != "" && saved.bootID != boot
}

// killShim ends the shim of an attempt that is to end without it: it lives where its
// agent has taken its lock or its socket away, or where it hangs.
func (saved savedSpec) killShim() error {
	var found []tree.Process
	if _, err := tree.EachProcess(func(p tree.Process) {
		if !p.Gone() && (saved.shim.Pid != 0 || p.Pid > 1) && saved.isShim(p) {
			found = append(found, p)
		}
	}); err != nil {
		return err
	}
	for _, p := range found {
		_ = p.Signal(syscall.SIGKILL)
		for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
			if now, err := tree.ReadProcess(p.Pid); err != nil || now.Start != p.Start || now.Gone() {
				break
			}
		}
	}
	return nil
}

// startedAsShim reports whether a process was executed as the shim with a marker. One that cannot be read is not known to be.
func startedAsShim(pid int, marker string) bool {
	m, err := tree.ShimMarker(pid)
	return err == nil && marker != "" && m == marker
}
