package bench

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

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
		if descendants && (errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH)) {
			continue // a worker that has ended
		}
		if errors.Is(err, os.ErrPermission) {
			return 0, 0, fmt.Errorf("reading the memory of process %d: an instance keeps it from its own user, too; run the bench as root", pids[i])
		}
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
