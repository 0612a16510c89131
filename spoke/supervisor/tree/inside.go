package tree

import (
	"errors"
	"os"
	"strconv"
	"syscall"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor/plain"
)

// Inside reports whether a process is of an agent: whether it descends from a shim, this process
// being one or not. A shim that this process descends from is left out: then both are of one
// agent. Every process of an agent's tree descends from its shim as long as that lives, and ends
// soon after it. What cannot be told counts as inside, and err says why.
func Inside(pid int) (inside bool, err error) {
	marker, err := AttemptOf(pid)
	return err != nil || marker != "", err
}

// AttemptOf is the marker of the attempt that a process is of, as [Inside] finds it; "" where it is of none. Where shims are
// below others the first of them counts: an agent may call any process of its own a shim.
func AttemptOf(pid int) (marker string, err error) {
	ours, err := ancestors()
	if err != nil {
		return "", err
	}
	err = settled(func() error {
		marker = ""
		return eachAncestor(pid, func(p int) error {
			if ours[p] {
				return nil
			}
			m, err := ShimMarker(p)
			if attempt.ValidMarker(m) {
				marker = m
			}
			return err
		})
	})
	if err != nil {
		return "", plain.Wrap("looking what a process descends from", err)
	}
	return marker, nil
}

// SeesProcesses says why this process cannot see others, and so tell agents from whoever else asks.
func SeesProcesses() error {
	_, err := ancestors()
	return err
}

// ancestors are what this process descends from, down to 0, which is the parent of the first.
func ancestors() (above map[int]bool, err error) {
	err = settled(func() error {
		above = map[int]bool{0: true}
		return eachAncestor(os.Getpid(), func(p int) error { above[p] = p != os.Getpid(); return nil })
	})
	return above, plain.Wrap("looking what this process descends from", err)
}

// settled looks again where what is looked at has ended meanwhile: its children have another parent then. No other error
// is one that a second look helps against, and who can cause one is to gain nothing by it.
func settled(look func() error) (err error) {
	for range 10 {
		if err = look(); !Ended(err) {
			return err
		}
	}
	return err
}

// Ended reports whether a process could not be read because it is there no more.
func Ended(err error) bool { return errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ESRCH) }

// eachAncestor sees a process and all that it descends from.
func eachAncestor(pid int, see func(pid int) error) error {
	for pid > 0 {
		p, err := ReadProcess(pid)
		if err != nil {
			return err
		}
		if err := see(pid); err != nil {
			return err
		}
		pid = p.Parent
	}
	return nil
}

// ShimMarker is the marker that a process was started with as a shim, "" where it is none. An error says that this is not known.
func ShimMarker(pid int) (string, error) {
	var buf [8 << 10]byte // a path has 4 KiB at most
	n, err := ReadSmall("/proc/"+strconv.Itoa(pid)+"/cmdline", buf[:])
	if err != nil {
		return "", err
	}
	_, rest, _ := plain.Cut(string(buf[:n]), "\x00")
	name, rest, _ := plain.Cut(rest, "\x00")
	_, rest, _ = plain.Cut(rest, "\x00")
	marker, _, ended := plain.Cut(rest, "\x00")
	if name != attempt.ShimArg || !ended {
		return "", nil
	}
	return marker, nil
}
