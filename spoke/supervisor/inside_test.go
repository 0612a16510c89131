package supervisor

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor/tree"
)

// However an agent's process has come about, it is inside; who supervises it is not.
func TestWhoIsInsideOfAnAttempt(t *testing.T) {
	t.Parallel()
	a, dir := start(t, sh(`(setsid env -i sleep 300 </dev/null >/dev/null 2>&1 & echo $!) ; sleep 300`))
	var grandchild int
	require.Eventually(t, func() bool {
		out, _ := os.ReadFile(filepath.Join(dir, string(Stdout)))
		n, err := strconv.Atoi(strings.TrimSpace(string(out)))
		grandchild = n
		return err == nil
	}, 10*time.Second, time.Millisecond)

	require.True(t, Inside(a.Pid()))
	require.True(t, Inside(grandchild), "it left session and parent")
	require.True(t, Inside(a.run.Shim))
	require.False(t, Inside(os.Getpid()))
	require.False(t, Inside(os.Getppid()))
	require.False(t, Inside(1))
	require.True(t, Inside(maxPid), "what is not there cannot be told")

	marker := a.Marker()
	require.False(t, OfAnother(grandchild, marker))
	require.False(t, OfAnother(os.Getpid(), marker), "it is of none")
	require.True(t, OfAnother(grandchild, MarkerOf("another")))
	require.True(t, OfAnother(maxPid, marker))
}

// Without /proc nobody can be told from an agent, and everybody counts as one: an instance is to know before it serves.
func TestWithoutProcEverybodyIsInside(t *testing.T) {
	t.Parallel()
	ownMounts(t, func(t *testing.T) {
		require.NoError(t, SeesProcesses())
		require.NoError(t, unix.Mount("none", "/proc", "tmpfs", 0, ""))
		require.ErrorIs(t, SeesProcesses(), os.ErrNotExist)
		require.True(t, Inside(os.Getpid()))
	})
}

// Who calls a process of its own the shim of another attempt is of its own one all the same.
func TestWhoPretendsToBeOfAnotherAttempt(t *testing.T) {
	t.Parallel()
	other, scripts := MarkerOf("another"), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(scripts, attempt.ShimArg), []byte("sleep 300 & echo $!; wait"), 0o600))
	a, dir := start(t, sh("cd "+scripts+"; sh "+attempt.ShimArg+" x "+other))
	var child int
	require.Eventually(t, func() bool {
		out, _ := os.ReadFile(filepath.Join(dir, string(Stdout)))
		n, err := strconv.Atoi(strings.TrimSpace(string(out)))
		child = n
		return err == nil
	}, 10*time.Second, time.Millisecond)
	p, err := tree.ReadProcess(child)
	require.NoError(t, err)
	require.Equal(t, other, tree.ShimMarker(p.Parent), "so it says")

	require.False(t, OfAnother(child, a.Marker()))
	require.True(t, OfAnother(child, other))
}
