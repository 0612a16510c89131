package supervisor

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor/tree"
)

// An attempt that nobody adopts is over when nothing of it is left, and asking ends nothing of it.
func TestAnAttemptWithoutARecordIsOverWhenNothingIsLeft(t *testing.T) {
	t.Parallel()
	dir, file := filepath.Join(t.TempDir(), "attempt"), filepath.Join(t.TempDir(), "pids")
	spec := sh(`setsid sh -c 'echo $$ >>"$0"; exec sleep 600' "$1" & exec sleep 600`)
	spec.Argv, spec.Marker = append(spec.Argv, "agent", file), newMarker()
	known := Known{Marker: spec.Marker}
	pid := killedSpoke(t, dir, spec)
	child := pids(t, file, 1)[0]
	t.Cleanup(func() { _ = unix.Kill(child, unix.SIGKILL) })
	agent, err := tree.ReadProcess(pid)
	require.NoError(t, err)
	shim, err := tree.ReadProcess(agent.Parent)
	require.NoError(t, err)

	require.ErrorIs(t, CheckGone(dir, known), ErrRunning, "its shim goes on")

	require.True(t, alive(pid))
	require.NoError(t, shim.Signal(unix.SIGKILL))
	eventually(t, "the end of shim and agent", func() bool { return !alive(shim.Pid) && !alive(pid) })
	require.ErrorIs(t, CheckGone(dir, known), ErrRunning, "a process of it is left")
	require.True(t, alive(child), "and is not ended")
	require.NoFileExists(t, filepath.Join(dir, attempt.TombstoneFile))
	require.NoError(t, unix.Kill(child, unix.SIGKILL))
	eventually(t, "the end of what was left", func() bool { return !alive(child) })

	require.NoError(t, CheckGone(dir, known))

	require.ErrorIs(t, CheckOver(dir), ErrRunning, "nothing is recorded")
	require.Equal(t, 0, lateShim(t, dir, savedSpec{Attempt: attempt.Attempt{Spec: spec}}))
	require.Len(t, pids(t, file, 1), 1, "no shim starts it any more")
	_, got := adoptKnown(t, dir, known)
	require.Equal(t, Lost, got.Outcome)
	require.NoError(t, CheckOver(dir))
}

// What runs as the user of an attempt is of it, whatever its environment says.
func TestAnAttemptIsNotOverWhileItsUserHasAProcess(t *testing.T) {
	t.Parallel()
	if !asRoot(t) {
		return
	}
	dir, user := t.TempDir(), userOf(11)
	_, err := saveSpec(dir, sh("exit 0"))
	require.NoError(t, err)
	left := exec.Command("/bin/sleep", "600")
	left.SysProcAttr = asUser(user.ID)
	require.NoError(t, left.Start())
	t.Cleanup(func() { _ = left.Process.Kill(); _ = left.Wait() })

	require.ErrorIs(t, CheckGone(dir, Known{Marker: newMarker(), User: User{ID: user.ID}}), ErrRunning)

	require.True(t, alive(left.Process.Pid))
	require.NoError(t, left.Process.Kill())
	_ = left.Wait() // it says that it was killed
	require.NoError(t, CheckGone(dir, Known{Marker: newMarker(), User: User{ID: user.ID}}))
}

// A shim that lives keeps its attempt from being over, also while it has no process yet.
func TestAShimThatLivesKeepsItsAttempt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, err := saveSpec(dir, sh("exit 0"))
	require.NoError(t, err)
	lock, err := attempt.TakeLock(dir)
	require.NoError(t, err)

	require.ErrorIs(t, CheckGone(dir, Known{Marker: newMarker()}), ErrRunning)

	require.NoError(t, attempt.Release(lock))
	require.NoFileExists(t, filepath.Join(dir, attempt.TombstoneFile))
	require.NoError(t, CheckGone(dir, Known{Marker: newMarker()}))
}
