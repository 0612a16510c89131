package tree

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/plain"
)

// Pause stops the tree where it is until Resume: the kernel freezes a cgroup whole, and what is outside of it is
// stopped one by one, without a cgroup until a look finds nothing that is not. What was stopped before stays so
// afterwards. Whole is false where some of it may run all the same.
func (t *Tree) Pause() (whole bool, err error) {
	if t.group == nil {
		_, whole, err = t.stopAll(t.pause, func() {})
		return whole, err
	}
	if whole, err = t.group.freeze(true); err != nil {
		return false, err
	}
	found, err := t.Find(true)
	members := t.group.pids()
	for _, p := range found {
		if !slices.Contains(members, p.Pid) { // an agent with the rights to has moved it
			t.pause(p)
		}
	}
	return whole && err == nil, err
}

func (t *Tree) pause(p Process) {
	if p.Running() && p.Signal(syscall.SIGSTOP) == nil {
		t.paused[p.Pid] = p
	}
}

// Resume lets go on what Pause has stopped. Of a group that is gone nothing is left to go on.
func (t *Tree) Resume() error {
	thawed, err := t.group.freeze(false)
	for pid, p := range t.paused {
		_ = p.Signal(syscall.SIGCONT) // it may have been ended
		delete(t.paused, pid)
	}
	switch {
	case gone(err):
		return nil
	case err == nil && !thawed:
		return errors.New("cgroup " + t.group.path + " stays frozen, as where one above it is")
	}
	return err
}

// gone reports whether an error says that a cgroup was removed.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV)
}

// freeze freezes the group and all below it, or thaws it, and reports whether that is done.
func (c *Group) freeze(on bool) (done bool, err error) {
	if c == nil {
		return true, nil
	}
	word, doing := "0", "thawing"
	if on {
		word, doing = "1", "freezing"
	}
	if err := writeGroup(plain.Join(c.path, "cgroup.freeze"), word); err != nil {
		return false, plain.Wrap(doing+" cgroup "+c.path, err)
	}
	for end := time.Now().Add(freezeTime); ; time.Sleep(time.Millisecond) {
		b, err := os.ReadFile(plain.Join(c.path, "cgroup.events"))
		if gone(err) {
			return false, plain.Wrap(doing+" cgroup "+c.path, err)
		}
		if done = err == nil && says(string(b), "frozen", word); done || time.Now().After(end) {
			return done, nil
		}
	}
}
