package supervisor

import (
	"os"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor/tree"
)

// Inside reports whether a process is of an agent: whether it descends from a shim. A shim
// that this process descends from too is left out: then both are of one agent. Every process of
// an agent's tree descends from its shim as long as that lives, and ends soon after it. What
// cannot be told counts as inside.
func Inside(pid int) bool {
	ours := map[int]bool{}
	if err := eachAncestor(os.Getpid(), func(p int) { ours[p] = true }); err != nil {
		return true
	}
	inside := false
	err := eachAncestor(pid, func(p int) { inside = inside || !ours[p] && attempt.ValidMarker(shimMarker(p)) })
	return inside || err != nil
}

// eachAncestor sees a process and all that it descends from.
func eachAncestor(pid int, see func(pid int)) error {
	for pid > 0 {
		p, err := tree.ReadProcess(pid)
		if err != nil {
			return err
		}
		see(pid)
		pid = p.Parent
	}
	return nil
}
