package attack

import (
	"errors"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Known is what tells processes and directories of the host from those that have the same names
// in a bubble.
type Known struct {
	Births map[int]string    // when processes began, as /proc has it
	Dirs   map[string]uint64 // inodes of directories
}

// sharedDirs are directories that a bubble may have of its own.
var sharedDirs = []string{"/etc", "/usr/local/bin", "/run", "/tmp", "/dev/shm", "/root"}

// nobody is a process that there is not: the kernel gives no such number.
const nobody = 1 << 22

// Look returns what is known of a spoke's process and its host.
func Look(daemon int) Known {
	k := Known{map[int]string{daemon: birth(daemon), 1: birth(1)}, map[string]uint64{}}
	for _, dir := range sharedDirs {
		k.Dirs[dir], _ = inode(dir) // one that is not there cannot be written to
	}
	return k
}

// enter takes out of the targets of an agent in a bubble what is not there: a process that has
// the number of another one is none.
func (t *Targets) enter() {
	if !t.Bubble {
		return
	}
	if birth(t.Daemon) != t.Known.Births[t.Daemon] {
		t.Daemon = nobody
	}
	if line, err := os.ReadFile("/proc/" + strconv.Itoa(t.Shim) + "/cmdline"); err != nil || !strings.Contains(string(line), "\x00_shim\x00") {
		t.Shim = nobody
	}
}

// init1 is the first process of the host.
func (t Targets) init1() int {
	if t.Bubble && birth(1) != t.Known.Births[1] {
		return nobody
	}
	return 1
}

// own reports whether a process is of this attempt, and not the agent itself.
func (t Targets) own(pid int) bool { return t.Bubble && pid == os.Getppid() }

// onHosts does something in a directory of the host, and not in one of the same name.
func (t Targets) onHosts(dir string, do func(dir string) error) error {
	if n, err := inode(dir); t.Bubble && (err != nil || n != t.Known.Dirs[dir]) {
		return errors.Join(errors.New("the agent has a directory of its own in its place"), err)
	}
	return do(dir)
}

func birth(pid int) string {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return ""
	}
	f := strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')')+1:]))
	if len(f) < 20 {
		return ""
	}
	return f[19]
}

func inode(path string) (uint64, error) {
	var st unix.Stat_t
	err := unix.Stat(path, &st)
	return st.Ino, err
}
