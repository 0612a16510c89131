//go:build crashpoints

package crash

import (
	"os"
	"strconv"
	"strings"
	"syscall"
)

// Point ends a process with SIGKILL when SPAWNMESH_CRASH names this step:
// "step" ends this process, "step=PIDFILE" the one whose id is the first line of
// the file, such as a database server. A marker file, SPAWNMESH_CRASH_ONCE, is made first, so that a
// process that is started again does not end again.
func Point(step string) {
	want, file, other := strings.Cut(os.Getenv("SPAWNMESH_CRASH"), "=")
	if want != step {
		return
	}
	once := os.Getenv("SPAWNMESH_CRASH_ONCE")
	f, err := os.OpenFile(once, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	f.Close()
	pid := os.Getpid()
	if other {
		raw, err := os.ReadFile(file)
		if err != nil {
			return
		}
		line, _, _ := strings.Cut(string(raw), "\n")
		if pid, err = strconv.Atoi(strings.TrimSpace(line)); err != nil {
			return
		}
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
	if !other {
		select {}
	}
}
