package supervisor

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
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
	errUntold   = errors.New("it cannot be told now whether this is the shim of the attempt") // no sign of anything about the attempt
	errLockHeld = attempt.Spoilt("the lock is held by a process that is not the shim")
)

// isShim reports whether a process is the shim of the attempt: the one on record, or, of
// one that was not recorded yet, any that was started as its shim. An error says that this
// cannot be told now.
func (saved savedSpec) isShim(p tree.Process) (bool, error) {
	if saved.shim.Pid != 0 {
		return p.Pid == saved.shim.Pid && p.Start == saved.shim.Start && !saved.otherBoot(), nil
	}
	return startedAsShim(p.Pid, saved.Marker)
}

// proveShim returns nil where the process with a pid is the live shim of the attempt, errStranger where it is known
// not to be, and errUntold where that cannot be told now, as without open files.
func (saved savedSpec) proveShim(pid int) error {
	p, err := tree.ReadProcess(pid)
	is := err == nil && !p.Gone()
	if is {
		is, err = saved.isShim(p)
	}
	switch {
	case is:
		return nil
	case err == nil, tree.Ended(err):
		return errStranger
	}
	return fmt.Errorf("%w: %w", errUntold, err)
}

// shimGone reports whether the shim on record has ended.
func (saved savedSpec) shimGone() bool {
	if saved.shim.Pid == 0 {
		return false
	}
	return errors.Is(saved.proveShim(saved.shim.Pid), errStranger)
}

// otherBoot reports whether the attempt is one of an earlier run of the kernel.
func (saved savedSpec) otherBoot() bool {
	boot, err := BootID()
	return err == nil && saved.bootID != "" && saved.bootID != boot
}

// shims are the live processes that are the shim of the attempt, one at most unless somebody plays it. An error says that there may be one more.
func (saved savedSpec) shims() (found []tree.Process, err error) {
	var unread error
	_, err = tree.EachProcess(func(p tree.Process) error {
		if p.Gone() || saved.shim.Pid == 0 && p.Pid <= 1 {
			return nil
		}
		is, err := saved.isShim(p)
		if is && saved.shim.Pid == 0 { // none is on record, and an agent with a user of its own may play it
			is, err = tree.RunsAs(p.Pid, int64(syscall.Getuid()))
		}
		if is {
			found = append(found, p)
		} else if err != nil && !tree.Ended(err) {
			unread = cmp.Or(unread, err)
		}
		return nil
	})
	return found, cmp.Or(err, unread)
}

// killShim ends the shim of an attempt that is to end without it: it lives where its
// agent has taken its lock or its socket away, or where it hangs. An error says that one may live.
func (saved savedSpec) killShim() error {
	found, err := saved.shims()
	for _, p := range found {
		_ = p.Signal(syscall.SIGKILL)
		for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
			if now, err := tree.ReadProcess(p.Pid); err != nil || now.Start != p.Start || now.Gone() {
				break
			}
		}
	}
	return err
}

// startedAsShim reports whether a process was executed as the shim with a marker. One that this process may not read is none:
// a shim has the same user.
func startedAsShim(pid int, marker string) (bool, error) {
	m, err := tree.ShimMarker(pid)
	if errors.Is(err, fs.ErrPermission) {
		return false, nil
	}
	return err == nil && marker != "" && m == marker, err
}
