package tree

import (
	"slices"
	"strconv"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/plain"
)

// adapters are those of a tree that say by their arguments that they are the command worker acp of this program: they tell their coding agent to end
// its turn, end what they have started, and end.
func adapters(found []Process) []Process {
	return slices.DeleteFunc(slices.Clone(found), func(p Process) bool { return !isAdapter(p.Pid) })
}

func isAdapter(pid int) bool {
	var buf [8 << 10]byte // a path has 4 KiB at most
	n, err := ReadSmall("/proc/"+strconv.Itoa(pid)+"/cmdline", buf[:])
	_, rest, _ := plain.Cut(string(buf[:n]), "\x00")
	_, ok := plain.CutPrefix(rest, "worker\x00acp\x00")
	return err == nil && ok
}
