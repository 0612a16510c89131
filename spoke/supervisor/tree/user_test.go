package tree

import (
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
)

// Nothing is looked for: what forks while it is killed has no time to get away.
func TestAUserIsEndedInOneStep(t *testing.T) {
	t.Parallel()
	user := attempt.User{ID: 1_877_000_001, Reaper: 1_877_000_000}
	if os.Geteuid() != 0 {
		require.ErrorContains(t, EndUser(user), "becoming it", "only root ends what another user has")
		return
	}
	c := exec.Command("/bin/sh", "-c", `for i in 1 2 3; do (while :; do (exec true) & wait; done) & done; echo up; wait`)
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: &syscall.Credential{Uid: uint32(user.ID), Gid: uint32(user.ID)}}
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	var line [3]byte
	_, err = out.Read(line[:])
	require.NoError(t, err)
	require.True(t, RunsAs(c.Process.Pid, user.ID))
	require.False(t, RunsAs(c.Process.Pid, user.Reaper))

	t.Cleanup(func() { _ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) })
	found, err := New("", 0, nil).As(user).Find(true)
	require.NoError(t, err)
	require.True(t, slices.ContainsFunc(found, func(p Process) bool { return p.Pid == c.Process.Pid }), "its user tells whose it is")

	require.NoError(t, EndUser(user))

	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	select {
	case err := <-ended:
		require.ErrorContains(t, err, "signal: killed")
	case <-time.After(10 * time.Second):
		require.FailNow(t, "it lives")
	}
	// Each has its signal; a busy host takes its time to carry them out.
	require.Eventually(t, func() bool {
		running, err := RunningUsers(user.ID, user.ID)
		return err == nil && len(running) == 0
	}, 10*time.Second, time.Millisecond)
}

// Whoever sees a shim knows its marker. A process of another user that has it is none of the tree's.
func TestAMarkerCountsWithOurUserOnly(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		return // no process of another user can be started
	}
	marker := newMarker()
	start := func(user uint32) int {
		c := exec.Command("/bin/sleep", "600")
		c.Env = []string{attempt.MarkerName + "=" + marker}
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
		require.NoError(t, c.Start())
		t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
		return c.Process.Pid
	}
	ours, others := start(0), start(1_877_000_009)
	pids := func(tree *Tree) (list []int) {
		found, err := tree.Find(true)
		require.NoError(t, err)
		for _, p := range found {
			list = append(list, p.Pid)
		}
		return list
	}

	require.Equal(t, []int{ours}, pids(New(marker, 0, nil)))
	require.Empty(t, pids(New(marker, 0, nil).As(attempt.User{ID: 1_877_000_008, Reaper: 1_877_000_000})), "who has a user of its own is known by that alone")
	require.Equal(t, []int{others}, pids(New(marker, 0, nil).As(attempt.User{ID: 1_877_000_009, Reaper: 1_877_000_000})))
}
