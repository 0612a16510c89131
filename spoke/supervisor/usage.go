package supervisor

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/tree"
)

// clockTick is the unit of the CPU times in /proc, the same on every Linux.
const clockTick = 10 * time.Millisecond

// A Usage is what the tree of an agent takes at a moment.
type Usage struct {
	Processes int
	RSS       int64         // bytes, pages shared between its processes counted for each
	CPU       time.Duration // used since the start, by processes that have ended too
}

// Usage measures the tree. It reads /proc here and does not disturb the shim;
// its cost grows with the tree and not with the host.
func (a *Agent) Usage() (Usage, error) {
	shim, err := tree.ReadProcess(a.run.Shim)
	if err != nil {
		return Usage{}, fmt.Errorf("measuring attempt %s: %w", a.saved.Marker, err)
	}
	u := Usage{CPU: time.Duration(shim.ChildTicks) * clockTick}
	seen := map[int]bool{shim.Pid: true}
	queue := childrenOf(shim.Pid)
	for len(queue) > 0 {
		pid := queue[0]
		queue = queue[1:]
		p, err := tree.ReadProcess(pid)
		if err != nil || seen[pid] {
			continue // ended meanwhile
		}
		seen[pid] = true
		u.Processes++
		u.RSS += p.RSSPages * int64(os.Getpagesize())
		u.CPU += time.Duration(p.Ticks+p.ChildTicks) * clockTick
		queue = append(queue, childrenOf(pid)...)
	}
	// While the shim lives its pid is its own, so it was all along.
	if err := a.shim.Signal(syscall.Signal(0)); err != nil {
		return Usage{}, fmt.Errorf("measuring attempt %s: %w", a.saved.Marker, err)
	}
	return u, nil
}

// childrenOf lists the children of all threads of a process.
func childrenOf(pid int) []int {
	base := "/proc/" + strconv.Itoa(pid) + "/task/"
	threads, err := os.ReadDir(base)
	if err != nil {
		return nil
	}
	var children []int
	for _, thread := range threads {
		b, err := os.ReadFile(base + thread.Name() + "/children")
		if err != nil {
			continue
		}
		for _, field := range strings.Fields(string(b)) {
			if child, err := strconv.Atoi(field); err == nil {
				children = append(children, child)
			}
		}
	}
	return children
}
