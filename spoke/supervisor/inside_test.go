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
