package postgres

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// endWithUs has the kernel ask the server for a fast shutdown when the thread that starts it ends.
func endWithUs(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGINT }

// serversOn returns the live server processes that work in the cluster data, a postmaster and its children. A process
// that is dead but not reaped has no working directory any more.
func serversOn(data string) ([]int, error) {
	home, err := os.Stat(data)
	if err != nil {
		return nil, fmt.Errorf("looking for servers on the cluster: %w", err)
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("looking for servers on the cluster: %w", err)
	}
	var pids []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		dir := filepath.Join("/proc", entry.Name())
		name, err := os.ReadFile(filepath.Join(dir, "comm"))
		if err != nil || string(bytes.TrimSpace(name)) != "postgres" {
			continue
		}
		if cwd, err := os.Stat(filepath.Join(dir, "cwd")); err == nil && os.SameFile(cwd, home) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// attached tells whether a process is attached to the shared memory, or may be because it cannot be told.
func attached(s segment) bool {
	file, err := os.Open("/proc/sysvipc/shm")
	if err != nil {
		return true
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		// key shmid perms size cpid lpid nattch ...
		field := strings.Fields(lines.Text())
		if len(field) > 6 && field[0] == fmt.Sprint(s.key) && field[1] == fmt.Sprint(s.id) {
			return field[6] != "0"
		}
	}
	return lines.Err() != nil
}
