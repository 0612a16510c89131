package supervisor

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A cgroup is the control group (version 2) of one attempt. A nil *cgroup is
// the absence of one: it has no processes and nothing to kill.
type cgroup struct {
	path string
}

// newCgroup makes the group for marker in the first place of this host where
// that is possible, where the kernel has cgroup.kill (Linux 5.14) and, if there
// is such a place, where the limits are enforced. Unlimited says what is not.
func newCgroup(marker string, l Limits) (c *cgroup, unlimited string, err error) {
	places, err := cgroupPlaces()
	if err != nil {
		return nil, "", err
	}
	err = errors.New("making a cgroup: this host has no cgroup v2 hierarchy")
	for _, place := range places {
		next := &cgroup{filepath.Join(place, marker)}
		if problem := next.make(); problem != nil {
			err = problem
			continue
		}
		missing := next.limit(l)
		if missing == "" {
			_ = c.remove()
			return next, "", nil
		}
		if c != nil {
			_ = next.remove()
			continue
		}
		c, unlimited = next, missing
	}
	if c != nil {
		return c, unlimited, nil
	}
	return nil, "", err
}

func (c *cgroup) make() error {
	err := os.Mkdir(c.path, 0o755)
	if errors.Is(err, fs.ErrNotExist) { // the first one on this host
		if err = os.Mkdir(filepath.Dir(c.path), 0o755); err == nil || errors.Is(err, fs.ErrExist) {
			err = os.Mkdir(c.path, 0o755)
		}
	}
	if err != nil {
		return fmt.Errorf("making a cgroup: %w", err)
	}
	if err := unix.Access(filepath.Join(c.path, "cgroup.kill"), unix.W_OK); err != nil {
		_ = os.Remove(c.path)
		return fmt.Errorf("making a cgroup: cgroup.kill: %w", err)
	}
	return nil
}

// foundCgroup returns the group of an attempt: the one on record, or the one of its
// marker in the places of this host. Nothing that its agent can write to leads to it.
func foundCgroup(saved savedSpec) *cgroup {
	places, _ := cgroupPlaces()
	paths := []string{saved.shim.Cgroup}
	for _, place := range places {
		paths = append(paths, filepath.Join(place, saved.Marker))
	}
	for _, path := range paths {
		var fs unix.Statfs_t
		if filepath.Base(path) == saved.Marker && unix.Statfs(path, &fs) == nil && fs.Type == unix.CGROUP2_SUPER_MAGIC {
			return &cgroup{path}
		}
	}
	return nil
}

// name is the path of the group, empty where there is none.
func (c *cgroup) name() string {
	if c == nil {
		return ""
	}
	return c.path
}

// open returns a descriptor to start a process in the group with.
func (c *cgroup) open() (int, error) {
	fd, err := unix.Open(c.path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("opening cgroup %s: %w", c.path, err)
	}
	return fd, nil
}

// kill sends KILL to every process of the group and its sub-groups, those
// that are being forked too.
func (c *cgroup) kill() error {
	if c == nil {
		return nil
	}
	if err := os.WriteFile(filepath.Join(c.path, "cgroup.kill"), []byte("1"), 0); err != nil {
		return fmt.Errorf("killing cgroup %s: %w", c.path, err)
	}
	return nil
}

// populated reports whether a live process is in the group or below it, or
// may be: only a group that says so or is not there is empty.
func (c *cgroup) populated() bool {
	if c == nil {
		return false
	}
	b, err := os.ReadFile(filepath.Join(c.path, "cgroup.events"))
	return !errors.Is(err, fs.ErrNotExist) && !bytes.Contains(b, []byte("populated 0"))
}

// pids lists the processes of the group and its sub-groups.
func (c *cgroup) pids() []int {
	if c == nil {
		return nil
	}
	var pids []int
	for _, dir := range c.dirs() {
		b, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil {
			continue // removed meanwhile
		}
		for _, line := range strings.Fields(string(b)) {
			if pid, err := strconv.Atoi(line); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// remove takes the empty group away.
func (c *cgroup) remove() error {
	if c == nil {
		return nil
	}
	if err := os.Remove(c.path); err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	dirs := c.dirs() // the agent made sub-groups: the deepest go first
	for i := len(dirs) - 1; i >= 0; i-- {
		if err := os.Remove(dirs[i]); err != nil {
			return fmt.Errorf("removing a cgroup: %w", err)
		}
	}
	return nil
}

// dirs lists the group and all below it, parents before children.
func (c *cgroup) dirs() []string {
	var dirs []string
	_ = filepath.WalkDir(c.path, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return nil
	})
	return dirs
}

// cgroupPlaces lists where groups of attempts may be made, best first: below
// the group that a service manager has delegated to us, below the one this
// process is in, then at the top of the hierarchy, which is root's.
func cgroupPlaces() ([]string, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("looking for cgroups: %w", err)
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, fmt.Errorf("looking for cgroups: %w", err)
	}
	groups := parseCgroupPlaces(string(mounts), string(own))
	if len(groups) == 2 {
		if d := delegated(groups[0], groups[1]); d != "" && d != groups[0] {
			groups = slices.Insert(groups, 0, d)
		}
	}
	for i := range groups {
		groups[i] = filepath.Join(groups[i], "spawnmesh")
	}
	return groups, nil
}

// delegated returns the nearest group from dir up to the top that its service
// manager has marked as ours to divide: systemd does so with Delegate=yes.
func delegated(dir, top string) string {
	for ; len(dir) > len(top); dir = filepath.Dir(dir) {
		for _, name := range []string{"user.delegate", "trusted.delegate"} {
			var value [8]byte
			if n, err := unix.Getxattr(dir, name, value[:]); err == nil && string(value[:n]) == "1" {
				return dir
			}
		}
	}
	return ""
}

// parseCgroupPlaces returns the group this process is in, unless it is the top
// or out of sight, and the top.
func parseCgroupPlaces(mountinfo, own string) []string {
	root, mount := cgroupMount(mountinfo)
	if mount == "" {
		return nil
	}
	for line := range strings.Lines(own) {
		path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::")
		if !ok {
			continue
		}
		rel, err := filepath.Rel(root, path)
		if err != nil || rel == "." || rel == ".." || strings.HasPrefix(rel, "../") {
			break // we are at the top, or outside of what is mounted here
		}
		return []string{filepath.Join(mount, rel), mount}
	}
	return []string{mount}
}

// cgroupMount finds the cgroup2 mount in mountinfo: fields 4 and 5 are the
// root inside the hierarchy and the mount point, the type follows " - ".
func cgroupMount(mountinfo string) (root, mount string) {
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	for line := range strings.Lines(mountinfo) {
		before, after, ok := strings.Cut(line, " - ")
		f := strings.Fields(before)
		if ok && len(f) >= 5 && strings.HasPrefix(after, "cgroup2 ") {
			return unescape.Replace(f[3]), unescape.Replace(f[4])
		}
	}
	return "", ""
}
