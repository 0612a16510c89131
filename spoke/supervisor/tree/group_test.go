package tree

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
)

func TestDelegatedGroup(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	unit := filepath.Join(top, "system.slice", "spoke.service")
	own := filepath.Join(unit, "spoke")
	require.NoError(t, os.MkdirAll(own, 0o700))
	require.Empty(t, delegated(own, top))
	marked := unix.Setxattr(unit, "user.delegate", []byte("1"), 0) == nil || unix.Setxattr(unit, "trusted.delegate", []byte("1"), 0) == nil

	got := delegated(own, top)

	if !marked { // this file system keeps no such mark
		require.Empty(t, got)
		return
	}
	require.Equal(t, unit, got)
	require.Equal(t, unit, delegated(unit, top))
	require.Empty(t, delegated(filepath.Dir(unit), top))
}

// A group with processes of its own must not pass controllers on: with some of
// them its sub-groups could not be used any more.
func TestControllersPassOnlyThroughEmptyGroups(t *testing.T) {
	t.Parallel()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(t, err)
	_, top := mountPoint(string(mounts))
	group := filepath.Join(top, "spawnmesh-test-"+newMarker())
	if top == "" || os.Mkdir(group, 0o755) != nil {
		require.ErrorContains(t, passOn("pids", group, 1), "no pids controller", "no group can be made here")
		return
	}
	sub := &Group{filepath.Join(group, "sub")}
	require.NoError(t, os.Mkdir(sub.path, 0o755))
	t.Cleanup(func() { require.NoError(t, (&Group{group}).Remove()) })
	if !has(filepath.Join(group, "cgroup.controllers"), "pids") {
		require.ErrorContains(t, passOn("pids", group, 1), "no pids controller in "+group)
		return
	}
	p := exec.Command("/bin/sleep", "600")
	require.NoError(t, p.Start())
	defer func() { _ = p.Process.Kill(); _ = p.Wait() }()
	require.NoError(t, writeGroup(filepath.Join(group, "cgroup.procs"), strconv.Itoa(p.Process.Pid)))

	err = passOn("pids", group, 1)

	require.ErrorContains(t, err, "processes are in "+group+" itself")
	require.NoError(t, writeGroup(filepath.Join(top, "cgroup.procs"), strconv.Itoa(p.Process.Pid)))
	require.NoError(t, passOn("pids", group, 1))
	require.NoError(t, sub.set("pids", "pids.max", "7"))
}

// The kernel lists a process that is released at this moment as 0, and that is the parent of all
// others. A group may also list what this process descends from: whose files they are may say so.
func TestAGroupMakesNobodyElseItsOwn(t *testing.T) {
	t.Parallel()
	child := exec.Command("/bin/sleep", "600")
	require.NoError(t, child.Start())
	t.Cleanup(func() { _ = child.Process.Kill(); _ = child.Wait() })
	for name, pids := range map[string][]int{"nobody": {0}, "what it descends from": {os.Getppid(), 1}, "one of its own among them": {0, 1, os.Getppid(), child.Process.Pid}} {
		group := &Group{t.TempDir()}
		var list []byte
		for _, pid := range pids {
			list = fmt.Appendln(list, pid)
		}
		require.NoError(t, os.WriteFile(filepath.Join(group.path, "cgroup.procs"), list, 0o600))

		require.NotContains(t, group.pids(), 0)
		found, err := New(newMarker(), 0, group).Find(false)

		require.NoError(t, err)
		require.LessOrEqual(t, len(found), 1, name)
		for _, p := range found {
			require.Equal(t, child.Process.Pid, p.Pid, name)
			require.Contains(t, pids, child.Process.Pid, name)
		}
	}
}

// Two may end one attempt: what the other one has removed is empty.
func TestAGroupThatIsRemovedIsEmpty(t *testing.T) {
	t.Parallel()
	group, _, err := NewGroup(newMarker(), attempt.Limits{})
	if err != nil {
		require.Nil(t, group, "no group can be made here")
		return
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		for range 20_000 {
			_ = os.Remove(group.path)
			_ = os.Mkdir(group.path, 0o755)
		}
		_ = os.Remove(group.path)
	}()
	for running := true; running; {
		select {
		case <-over:
			running = false
		default:
		}
		require.False(t, group.Populated())
	}
}

// What was stopped goes on, or it is told why not; a group that is gone keeps nobody.
func TestResumeOfAGroup(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		files map[string]string
		want  string
	}{
		"thawed":             {map[string]string{"cgroup.freeze": "1", "cgroup.events": "populated 1\nfrozen 0\n"}, ""},
		"frozen from above":  {map[string]string{"cgroup.freeze": "1", "cgroup.events": "populated 1\nfrozen 1\n"}, "stays frozen"},
		"gone":               {nil, ""},
		"gone at the moment": {map[string]string{"cgroup.freeze": "1"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for file, text := range tt.files {
				require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
			}

			err := New("", 0, &Group{dir}).Resume()

			if tt.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tt.want)
		})
	}
	require.NoError(t, New("", 0, nil).Resume())
}
