package tree

import (
	"os"
	"slices"
	"strconv"
	"syscall"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/plain"
)

// places lists where groups of attempts may be made, best first: below
// the group that a service manager has delegated to us, below the one this
// process is in, then at the top of the hierarchy, which is root's.
func places() ([]string, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, plain.Wrap("looking for cgroups", err)
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, plain.Wrap("looking for cgroups", err)
	}
	groups := parsePlaces(string(mounts), string(own))
	if len(groups) == 2 {
		if d := delegated(groups[0], groups[1]); d != "" && d != groups[0] {
			groups = slices.Insert(groups, 0, d)
		}
	}
	for i := range groups {
		groups[i] = plain.Join(groups[i], "spawnmesh")
	}
	return groups, nil
}

// delegated returns the nearest group from dir up to the top that its service
// manager has marked as ours to divide: systemd does so with Delegate=yes.
func delegated(dir, top string) string {
	for ; len(dir) > len(top); dir = dirOf(dir) {
		for _, name := range []string{"user.delegate", "trusted.delegate"} {
			var value [8]byte
			if n, err := syscall.Getxattr(dir, name, value[:]); err == nil && string(value[:n]) == "1" {
				return dir
			}
		}
	}
	return ""
}

// parsePlaces returns the group this process is in, unless it is the top
// or out of sight, and the top.
func parsePlaces(mountinfo, own string) []string {
	root, mount := mountPoint(mountinfo)
	if mount == "" {
		return nil
	}
	for _, line := range plain.Lines(own) {
		path, ok := plain.CutPrefix(line, "0::")
		if !ok {
			continue
		}
		rel, ok := within(path, root)
		if !ok || rel == "" {
			break // we are at the top, or outside of what is mounted here
		}
		return []string{plain.Join(mount, rel), mount}
	}
	return []string{mount}
}

// within returns the way from root to a path below it, empty when they are the same.
func within(path, root string) (rel string, ok bool) {
	if rel, ok = plain.CutPrefix(path, root); !ok {
		return "", false
	}
	if root != "/" && rel != "" {
		rel, ok = plain.CutPrefix(rel, "/")
	}
	return rel, ok && rel != ".." && !starts(rel, "../")
}

func starts(s, prefix string) bool {
	_, ok := plain.CutPrefix(s, prefix)
	return ok
}

// mountPoint finds the cgroup2 mount in mountinfo: fields 4 and 5 are the
// root inside the hierarchy and the mount point, the type follows " - ".
func mountPoint(mountinfo string) (root, mount string) {
	for _, line := range plain.Lines(mountinfo) {
		before, after, ok := plain.Cut(line, " - ")
		f := plain.Fields(before)
		if ok && len(f) >= 5 && starts(after, "cgroup2 ") {
			return unescape(f[3]), unescape(f[4])
		}
	}
	return "", ""
}

// unescape undoes what the kernel does to blanks, line breaks and backslashes.
func unescape(s string) string {
	var b []byte
	for ; s != ""; s = s[1:] {
		if len(s) >= 4 && s[0] == '\\' {
			if c, err := strconv.ParseUint(s[1:4], 8, 8); err == nil {
				b = append(b, byte(c))
				s = s[3:]
				continue
			}
		}
		b = append(b, s[0])
	}
	return string(b)
}

// dirOf and baseOf split a path at its last slash.
func dirOf(path string) string  { return path[:max(lastIndex([]byte(path), '/'), 0)] }
func baseOf(path string) string { return path[lastIndex([]byte(path), '/')+1:] }
