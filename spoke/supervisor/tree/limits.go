package tree

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"syscall"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor/plain"
)

// A Missing is a limit that a group does not hold, and why.
type Missing struct {
	Limit GroupLimit
	Why   string
}

// A GroupLimit is what a group may be limited in.
type GroupLimit string

// What a group may be limited in.
const (
	MemoryLimit GroupLimit = "memory"
	SwapLimit   GroupLimit = "swap beside the memory"
	PidsLimit   GroupLimit = "processes"
	CPUsLimit   GroupLimit = "processors"
)

// Unheld are all limits of an agent without a group.
func Unheld(l attempt.Limits, why error) (missing []Missing) {
	for _, m := range []struct {
		limit GroupLimit
		asked int64
	}{{MemoryLimit, l.Memory}, {PidsLimit, l.Pids}, {CPUsLimit, l.CPUs}} {
		if m.asked > 0 {
			missing = append(missing, Missing{m.limit, why.Error()})
		}
	}
	return missing
}

// limit sets the limits of a group that is still empty, and returns those that it does not hold.
func (c *Group) limit(l attempt.Limits) (missing []Missing) {
	hold := func(limit GroupLimit, controller, file, value string) bool {
		err := c.set(controller, file, value)
		if err != nil {
			missing = append(missing, Missing{limit, err.Error()})
		}
		return err == nil
	}
	if l.Memory > 0 && hold(MemoryLimit, "memory", "memory.max", strconv.FormatInt(l.Memory, 10)) {
		hold(SwapLimit, "memory", "memory.swap.max", "0")
	}
	if l.Pids > 0 {
		hold(PidsLimit, "pids", "pids.max", strconv.FormatInt(l.Pids, 10))
	}
	if l.CPUs > 0 {
		hold(CPUsLimit, "cpu", "cpu.max", strconv.FormatInt(l.CPUs*cpuPeriod/1000, 10)+" "+strconv.FormatInt(cpuPeriod, 10))
	}
	return missing
}

const cpuPeriod = 100_000 // µs, of cpu.max

// set writes to a file of the group, for which the groups above have to pass the controller on.
func (c *Group) set(controller, file, value string) error {
	err := passOn(controller, dirOf(c.path), 2)
	if err == nil {
		err = writeGroup(plain.Join(c.path, file), value)
	}
	return err
}

// passOn makes the group dir pass a controller on to its sub-groups. Levels is
// how many groups may be changed for it: the one that attempts are made in, and
// the one that was delegated to us.
func passOn(controller, dir string, levels int) error {
	on := plain.Join(dir, "cgroup.subtree_control")
	if has(on, controller) {
		return nil
	}
	if !has(plain.Join(dir, "cgroup.controllers"), controller) {
		if levels == 1 {
			return errors.New("no " + controller + " controller in " + dir)
		}
		if err := passOn(controller, dirOf(dir), levels-1); err != nil {
			return err
		}
	}
	// The kernel would refuse most controllers, and with the others make the
	// sub-groups useless. The top has no type and is free of this rule.
	if has(plain.Join(dir, "cgroup.type"), "domain") {
		if b, err := os.ReadFile(plain.Join(dir, "cgroup.procs")); err != nil || len(b) > 0 {
			return errors.New("no " + controller + " controller: processes are in " + dir + " itself; with systemd set Delegate=yes and DelegateSubgroup=spoke")
		}
	}
	return writeGroup(on, "+"+controller)
}

// has reports whether a word is in a file of a group.
func has(file, word string) bool {
	b, err := os.ReadFile(file)
	return err == nil && slices.Contains(plain.Fields(string(b)), word)
}

// writeGroup writes to a file of a group; those are neither made nor truncated.
func writeGroup(file, text string) error {
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString(text)
		err = errors.Join(err, f.Close())
	}
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		return errors.New(file + " is not ours to write: delegate the group to this user")
	}
	return err
}

// Count reads a line "key N" of a file of the group; 0 when there is none.
func (c *Group) Count(file, key string) int64 {
	if c == nil {
		return 0
	}
	b, err := os.ReadFile(plain.Join(c.path, file))
	if err != nil {
		return 0
	}
	for _, line := range plain.Lines(string(b)) {
		if f := plain.Fields(line); len(f) == 2 && f[0] == key {
			n, _ := strconv.ParseInt(f[1], 10, 64)
			return n
		}
	}
	return 0
}

// Number reads a file of the group that holds one number; 0 when there is none.
func (c *Group) Number(file string) int64 {
	if c == nil {
		return 0
	}
	var buf [32]byte
	n, err := ReadSmall(plain.Join(c.path, file), buf[:])
	if err != nil {
		return 0
	}
	value, _ := strconv.ParseInt(trim(string(buf[:n])), 10, 64)
	return value
}

// says reports whether a line "key value" is in a text.
func says(text, key, value string) bool {
	return slices.ContainsFunc(plain.Lines(text), func(line string) bool { return line == key+" "+value })
}
