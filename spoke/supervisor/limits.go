package supervisor

import (
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

// Limits bound what the processes of a tree may take together. The kernel
// enforces them through the attempt's cgroup. Where it cannot, the agent runs
// all the same, and [Agent.Unlimited] and the exit say which limit does not hold
// and why. They stop an agent that goes wrong; a hostile one that has the user
// who owns the cgroup can raise them.
type Limits struct {
	// Memory is in bytes; the file cache counts, and swap is not used. When it
	// is reached and nothing can be given back, the kernel ends a process of the
	// tree. 0 = no limit.
	Memory int64 `json:"memory,omitempty"`
	// Pids is how many processes and threads there may be at a time; more
	// cannot be started. 0 = no limit.
	Pids int64 `json:"pids,omitempty"`
}

// Limited says in words what the limits of the attempt did, and what they could
// not; empty when there is nothing to say.
func (e Exit) Limited() string {
	var said []string
	if e.OOMKills > 0 {
		said = append(said, fmt.Sprintf("the kernel ended %d processes at the limit of memory", e.OOMKills))
	}
	if e.Refused > 0 {
		said = append(said, fmt.Sprintf("a process or thread could not be started %d times at the limit of processes", e.Refused))
	}
	if e.Unlimited != "" {
		said = append(said, e.Unlimited)
	}
	return strings.Join(said, "; ")
}

// limit sets the limits of a group that is still empty, and returns what of
// them does not hold.
func (c *cgroup) limit(l Limits) (unlimited string) {
	var missing []string
	if l.Memory > 0 {
		if err := c.set("memory", "memory.max", l.Memory); err != nil {
			missing = append(missing, err.Error())
		} else if err := c.set("memory", "memory.swap.max", 0); err != nil {
			missing = append(missing, "swap can be used beside the memory: "+err.Error())
		}
	}
	if l.Pids > 0 {
		if err := c.set("pids", "pids.max", l.Pids); err != nil {
			missing = append(missing, err.Error())
		}
	}
	return notEnforced(strings.Join(missing, "; "))
}

// notEnforced is how a start and an exit say that a limit does not hold.
func notEnforced(why string) string {
	if why == "" {
		return ""
	}
	return "limits not enforced: " + why
}

// set writes a number to a file of the group, for which the groups above have to
// pass the controller on.
func (c *cgroup) set(controller, file string, n int64) error {
	err := passOn(controller, filepath.Dir(c.path), 2)
	if err == nil {
		err = writeGroup(filepath.Join(c.path, file), strconv.FormatInt(n, 10))
	}
	return err
}

// passOn makes the group dir pass a controller on to its sub-groups. Levels is
// how many groups may be changed for it: the one that attempts are made in, and
// the one that was delegated to us.
func passOn(controller, dir string, levels int) error {
	on := filepath.Join(dir, "cgroup.subtree_control")
	if has(on, controller) {
		return nil
	}
	if !has(filepath.Join(dir, "cgroup.controllers"), controller) {
		if levels == 1 {
			return fmt.Errorf("no %s controller in %s", controller, dir)
		}
		if err := passOn(controller, filepath.Dir(dir), levels-1); err != nil {
			return err
		}
	}
	// The kernel would refuse most controllers, and with the others make the
	// sub-groups useless. The top has no type and is free of this rule.
	if has(filepath.Join(dir, "cgroup.type"), "domain") {
		if b, err := os.ReadFile(filepath.Join(dir, "cgroup.procs")); err != nil || len(b) > 0 {
			return fmt.Errorf("no %s controller: processes are in %s itself; with systemd set Delegate=yes and DelegateSubgroup=spoke", controller, dir)
		}
	}
	return writeGroup(on, "+"+controller)
}

// has reports whether a word is in a file of a group.
func has(file, word string) bool {
	b, err := os.ReadFile(file)
	return err == nil && slices.Contains(strings.Fields(string(b)), word)
}

// writeGroup writes to a file of a group; those are neither made nor truncated.
func writeGroup(file, text string) error {
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString(text)
		err = errors.Join(err, f.Close())
	}
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS) {
		return fmt.Errorf("%s is not ours to write: delegate the group to this user", file)
	}
	return err
}

// count reads a line "key N" of a file of the group; 0 when there is none.
func (c *cgroup) count(file, key string) int64 {
	if c == nil {
		return 0
	}
	b, err := os.ReadFile(filepath.Join(c.path, file))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == key {
			n, _ := strconv.ParseInt(f[1], 10, 64)
			return n
		}
	}
	return 0
}
