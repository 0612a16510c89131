package tree

import (
	"errors"
	"io/fs"
	"os"
	"strconv"
	"syscall"

	"github.com/spawnmesh/spawnmesh/spoke/hostfault"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor/plain"
)

const (
	cgroup2Magic = 0x63677270 // of statfs(2)
	oPath        = 0x200000   // O_PATH of open(2)
)

// A Group is the control group (version 2) of one attempt. A nil *Group is
// the absence of one: it has no processes and nothing to kill.
type Group struct {
	path string
}

// NewGroup makes the group for marker in the first place of this host where
// that is possible, where the kernel has cgroup.kill (Linux 5.14) and, if there
// is such a place, where the group holds all limits. Missing are those that it does not.
func NewGroup(marker string, l attempt.Limits) (c *Group, missing []Missing, err error) {
	candidates, err := places()
	if err != nil {
		return nil, nil, err
	}
	err = errors.New("making a cgroup: this host has no cgroup v2 hierarchy")
	for _, place := range candidates {
		next := &Group{plain.Join(place, marker)}
		if problem := next.make(); problem != nil {
			err = problem
			continue
		}
		lacks := next.limit(l)
		if len(lacks) == 0 {
			_ = c.Remove()
			return next, nil, nil
		}
		if c != nil {
			_ = next.Remove()
			continue
		}
		c, missing = next, lacks
	}
	if c != nil {
		return c, missing, nil
	}
	return nil, nil, err
}

func (c *Group) make() error {
	err := os.Mkdir(c.path, 0o755)
	if errors.Is(err, fs.ErrNotExist) { // the first one on this host
		if err = os.Mkdir(dirOf(c.path), 0o755); err == nil || errors.Is(err, fs.ErrExist) {
			err = os.Mkdir(c.path, 0o755)
		}
	}
	if err != nil {
		return plain.Wrap("making a cgroup", err)
	}
	if err := syscall.Access(plain.Join(c.path, "cgroup.kill"), 2); err != nil {
		_ = os.Remove(c.path)
		return plain.Wrap("making a cgroup: cgroup.kill", err)
	}
	return nil
}

// FindGroup returns the group of the attempt with a marker: the one on record, or
// the one of its marker in the places of this host. Nothing that its agent can write
// to leads to it. It is nil where there is none.
func FindGroup(marker, onRecord string) (*Group, error) {
	candidates, err := places()
	if hostfault.Is(err) {
		return nil, err
	}
	paths := []string{onRecord}
	for _, place := range candidates {
		paths = append(paths, plain.Join(place, marker))
	}
	for _, path := range paths {
		var fs syscall.Statfs_t
		if baseOf(path) != marker {
			continue
		}
		err := syscall.Statfs(path, &fs)
		switch {
		case hostfault.Is(err):
			return nil, plain.Wrap("looking for cgroup "+path, err)
		case err == nil && fs.Type == cgroup2Magic:
			return &Group{path}, nil
		}
	}
	return nil, nil
}

// Path is the path of the group, empty where there is none.
func (c *Group) Path() string {
	if c == nil {
		return ""
	}
	return c.path
}

// Open returns a descriptor to start a process in the group with.
func (c *Group) Open() (int, error) {
	fd, err := syscall.Open(c.path, oPath|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return -1, plain.Wrap("opening cgroup "+c.path, err)
	}
	return fd, nil
}

// Kill sends KILL to every process of the group and its sub-groups, those
// that are being forked too.
func (c *Group) Kill() error {
	if c == nil {
		return nil
	}
	if err := writeGroup(plain.Join(c.path, "cgroup.kill"), "1"); err != nil {
		return plain.Wrap("killing cgroup "+c.path, err)
	}
	return nil
}

// Populated reports whether a live process is in the group or below it, or
// may be: only a group that says so or is not there is empty.
func (c *Group) Populated() bool {
	if c == nil {
		return false
	}
	b, err := os.ReadFile(plain.Join(c.path, "cgroup.events"))
	gone := errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) // the latter when it is removed while it is read
	return !gone && !says(string(b), "populated", "0")
}

// pids lists the processes of the group and its sub-groups.
func (c *Group) pids() []int {
	if c == nil {
		return nil
	}
	var pids []int
	for _, dir := range c.dirs() {
		b, err := os.ReadFile(plain.Join(dir, "cgroup.procs"))
		if err != nil {
			continue // removed meanwhile
		}
		for _, line := range plain.Fields(string(b)) {
			// The kernel lists a process as 0 that is released while it is listed. It is the parent of
			// all processes.
			if pid, err := strconv.Atoi(line); err == nil && pid > 0 {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// Remove takes the empty group away.
func (c *Group) Remove() error {
	if c == nil {
		return nil
	}
	if err := os.Remove(c.path); err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	dirs := c.dirs() // the agent made sub-groups: the deepest go first
	for i := len(dirs) - 1; i >= 0; i-- {
		if err := os.Remove(dirs[i]); err != nil {
			return plain.Wrap("removing a cgroup", err)
		}
	}
	return nil
}

// dirs lists the group and all below it, parents before children.
func (c *Group) dirs() []string { return append([]string{c.path}, below(c.path)...) }

func below(dir string) []string {
	var dirs []string
	entries, _ := os.ReadDir(dir) // it may be removed meanwhile
	for _, e := range entries {
		if e.IsDir() {
			sub := plain.Join(dir, e.Name())
			dirs = append(append(dirs, sub), below(sub)...)
		}
	}
	return dirs
}
