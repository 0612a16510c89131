package tree

import (
	"os"
	"strconv"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor/plain"
)

// Inside reports whether a process is of an agent: whether it descends from a shim, this process
// being one or not. A shim that this process descends from is left out: then both are of one
// agent. Every process of an agent's tree descends from its shim as long as that lives, and ends
// soon after it. What cannot be told counts as inside.
func Inside(pid int) bool {
	marker, err := AttemptOf(pid)
	return err != nil || marker != ""
}

// AttemptOf is the marker of the attempt that a process is of, as [Inside] finds it; "" where it is of none. Where shims are
// below others the first of them counts: an agent may call any process of its own a shim.
func AttemptOf(pid int) (marker string, err error) {
	ours, err := ancestors()
	if err != nil {
		return "", err
	}
	err = eachAncestor(pid, func(p int) {
		if ours[p] {
			return
		}
		if m := ShimMarker(p); attempt.ValidMarker(m) {
			marker = m
		}
	})
	return marker, err
}

// SeesProcesses says why this process cannot see others, and so tell agents from whoever else asks.
func SeesProcesses() error {
	_, err := ancestors()
	return err
}

// ancestors are what this process descends from, down to 0, which is the parent of the first.
func ancestors() (above map[int]bool, err error) {
	for range 10 { // one that ends meanwhile leaves its children to another one
		above = map[int]bool{0: true}
		if err = eachAncestor(os.Getpid(), func(p int) { above[p] = p != os.Getpid() }); err == nil {
			return above, nil
		}
	}
	return nil, plain.Wrap("looking what this process descends from", err)
}

// eachAncestor sees a process and all that it descends from.
func eachAncestor(pid int, see func(pid int)) error {
	for pid > 0 {
		p, err := ReadProcess(pid)
		if err != nil {
			return err
		}
		see(pid)
		pid = p.Parent
	}
	return nil
}

// ShimMarker is the marker that a process was started with as a shim, "" where it is none.
func ShimMarker(pid int) string {
	var buf [8 << 10]byte // a path has 4 KiB at most
	n, err := ReadSmall("/proc/"+strconv.Itoa(pid)+"/cmdline", buf[:])
	if err != nil {
		return ""
	}
	_, rest, _ := plain.Cut(string(buf[:n]), "\x00")
	name, rest, _ := plain.Cut(rest, "\x00")
	_, rest, _ = plain.Cut(rest, "\x00")
	marker, _, ended := plain.Cut(rest, "\x00")
	if name != attempt.ShimArg || !ended {
		return ""
	}
	return marker
}
