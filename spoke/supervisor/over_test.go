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

// What runs as a user that an attempt may have had keeps it from being over. Only what has its marker, too, is ended:
// the rest may be another's, who has the user now.
func TestOfAFormerUserOnlyWhatIsMarkedIsEnded(t *testing.T) {
	t.Parallel()
	if !asRoot(t) {
		return
	}
	dir, known := t.TempDir(), Known{Marker: newMarker(), Former: userOf(12).ID, Began: true}
	_, err := saveSpec(dir, sh("exit 0"))
	require.NoError(t, err)
	start := func(id int64, env ...string) *exec.Cmd {
		c := exec.Command("/bin/sleep", "600")
		c.Env, c.SysProcAttr = append([]string{"A=1"}, env...), asUser(id)
		require.NoError(t, c.Start())
		t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
		return c
	}
	mark := attempt.MarkerName + "=" + known.Marker
	marked, hidden, strange := start(known.Former, mark), start(known.Former), start(userOf(13).ID, mark)
	require.ErrorIs(t, CheckGone(dir, known), ErrRunning)
	require.True(t, alive(marked.Process.Pid), "who asks ends nothing")

	_, _, err = Adopt(t.Context(), dir, known)

	var left *Incomplete
	require.ErrorAs(t, err, &left)
	require.Len(t, left.Survivors, 1)
	require.ErrorContains(t, err, "which its agent may have had under an earlier range")
	require.Equal(t, hidden.Process.Pid, left.Survivors[0].Pid)
	require.False(t, alive(marked.Process.Pid))
	require.True(t, alive(hidden.Process.Pid), "it may be another's")
	require.True(t, alive(strange.Process.Pid), "nobody has ever said that it is of the attempt")
	require.NoError(t, hidden.Process.Kill())
	_ = hidden.Wait() // it says that it was killed
	_, got := adoptKnown(t, dir, known)
	require.Equal(t, Lost, got.Outcome)
}
