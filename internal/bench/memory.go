package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spawnmesh/spawnmesh/internal/fleet"
)

// Memory is what an idle instance holds, in KiB.
type Memory struct {
	Name     string `json:"name"`
	RSS      int64  `json:"rss_kib"`
	PSS      int64  `json:"pss_kib"`
	Postgres int64  `json:"postgres_pss_kib"` // of its private server, all processes
}

// Idle measures a hub and a spoke that have nothing to do.
func Idle(ctx context.Context) (list []Memory, err error) {
	m, err := open(ctx, 4)
	if m != nil {
		defer func() { err = errors.Join(err, m.Stop(ctx)) }()
	}
	if err != nil {
		return nil, err
	}
	select { // what start-up left behind is given back after a while
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(45 * time.Second):
	}
	for _, n := range []*fleet.Process{m.Hub, m.Spokes["attic"]} {
		rss, pss, err := memory(n.Cmd.Process.Pid, false)
		if err != nil {
			return nil, err
		}
		_, pg, err := memory(n.Cmd.Process.Pid, true)
		if err != nil {
			return nil, err
		}
		list = append(list, Memory{Name: n.Name, RSS: rss, PSS: pss, Postgres: pg})
	}
	return list, nil
}

// memory sums what the kernel says of a process, or of all its descendants, in
// KiB.
func memory(pid int, descendants bool) (rss, pss int64, err error) {
	pids := []int{pid}
	if descendants {
		pids = children(pid)
	}
	for i := 0; i < len(pids); i++ {
		if descendants {
			pids = append(pids, children(pids[i])...)
		}
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pids[i]))
		if err != nil {
			return 0, 0, fmt.Errorf("reading the memory of process %d: %w", pids[i], err)
		}
		for line := range strings.Lines(string(raw)) {
			var kib int64
			if n, _ := fmt.Sscanf(line, "Rss: %d kB", &kib); n == 1 {
				rss += kib
			}
			if n, _ := fmt.Sscanf(line, "Pss: %d kB", &kib); n == 1 {
				pss += kib
			}
		}
	}
	return rss, pss, nil
}

func children(pid int) []int {
	var list []int
	tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	for _, t := range tasks {
		raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, t.Name()))
		for _, f := range strings.Fields(string(raw)) {
			if n, err := strconv.Atoi(f); err == nil {
				list = append(list, n)
			}
		}
	}
	return list
}
