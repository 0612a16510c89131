package supervisor

import (
	"fmt"
	"syscall"
	"time"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/tree"
)

// A Usage is what the tree of an agent takes at a moment.
type Usage struct {
	Processes int
	RSS       int64         // bytes, pages shared between its processes counted for each
	CPU       time.Duration // used since the start, by processes that have ended too
}

// Usage measures the tree. It reads /proc here and does not disturb the shim.
func (a *Agent) Usage() (Usage, error) {
	t, err := tree.Measure(a.run.Shim)
	if err == nil {
		err = a.shim.Signal(syscall.Signal(0)) // while the shim lives its pid is its own, so it was all along
	}
	if err != nil {
		return Usage{}, fmt.Errorf("measuring attempt %s: %w", a.saved.Marker, err)
	}
	return Usage{Processes: t.Processes, RSS: t.RSS, CPU: t.CPU}, nil
}
