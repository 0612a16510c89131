package tree

import (
	"os"
	"os/exec"
	"runtime"
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
	for id, runs := range map[int64]bool{user.ID: true, user.Reaper: false} {
		got, err := RunsAs(c.Process.Pid, id)
		require.NoError(t, err)
		require.Equal(t, runs, got)
	}

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

// A process may have been started so that a change of its user takes no capability (capabilities(7), SECBIT_NO_SETUID_FIXUP).
// It is tried where no process of this host can be seen.
func TestOnlyAUserIsEndedWhateverTheSecurebits(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		return // nobody else may set them
	}
	const inside = "SPAWNMESH_TEST_SECUREBITS"
	if os.Getenv(inside) != "" {
		endAUserBesideOthers(t)
		return
	}
	c := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	c.Env = append(os.Environ(), inside+"=1")
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	var out []byte
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlock: its thread ends with it
		const setSecurebits, noSetuidFixup = 28, 4
		_, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, setSecurebits, noSetuidFixup, 0, 0, 0, 0)
		if errno != 0 {
			done <- errno
			return
		}
		said, err := c.CombinedOutput()
		out = said
		done <- err
	}()
	require.NoError(t, <-done, "%s", out)
	require.Contains(t, string(out), "--- PASS: "+t.Name())
}

// endAUserBesideOthers is the first process of a namespace.
func endAUserBesideOthers(t *testing.T) {
	t.Helper()
	require.Equal(t, 1, os.Getpid())
	user := attempt.User{ID: 1_877_000_011, Reaper: 1_877_000_012}
	start := func(id uint32) chan error {
		c := exec.Command("/bin/sleep", "60")
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: id, Gid: id}}
		require.NoError(t, c.Start())
		ended := make(chan error, 1)
		go func() { ended <- c.Wait() }()
		return ended
	}
	others, theirs := []chan error{start(0), start(1_877_000_013)}, start(uint32(user.ID))

	require.NoError(t, EndUser(user))

	require.ErrorContains(t, <-theirs, "signal: killed")
	for _, ended := range others {
		select {
		case err := <-ended:
			require.FailNow(t, "one of another user was ended", "%v", err)
		case <-time.After(200 * time.Millisecond):
		}
	}
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
