package supervisor

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
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

	require.True(t, inside(a.Pid()))
	require.True(t, inside(grandchild), "it left session and parent")
	require.True(t, inside(a.run.Shim))
	require.False(t, inside(os.Getpid()))
	require.False(t, inside(os.Getppid()))
	require.False(t, inside(1))
	require.True(t, inside(maxPid), "what is not there cannot be told")

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
		require.True(t, inside(os.Getpid()))
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
	says, err := tree.ShimMarker(p.Parent)
	require.NoError(t, err)
	require.Equal(t, other, says, "so it says")

	require.False(t, OfAnother(child, a.Marker()))
	require.True(t, OfAnother(child, other))
}

// Who takes the open files away from a spoke while it looks who asks gains nothing by it: what cannot be read then is not
// taken for a process that is no shim. The limit is one of a process, so this is one of its own.
func TestWhoAsksIsNotToldWithoutOpenFiles(t *testing.T) {
	t.Parallel()
	if os.Getenv(againName) != t.Name() {
		require.NoError(t, testAgain(t, t.TempDir(), nil))
		return
	}
	a, _ := start(t, sh("sleep 300"))
	var was unix.Rlimit
	require.NoError(t, unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, &was))
	limit := func(n uint64) { _ = unix.Prlimit(0, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: n, Max: was.Max}, nil) }

	limit(0)
	_, err := tree.ShimMarker(a.run.Shim)
	agent, why := Inside(a.Pid())
	own, _ := Inside(os.Getpid())
	another := OfAnother(a.Pid(), a.Marker())
	_, byNumber := findProcess(a.run.Shim)
	limit(was.Cur)

	require.ErrorIs(t, err, syscall.EMFILE)
	require.ErrorIs(t, why, syscall.EMFILE)
	require.True(t, agent)
	require.True(t, own, "it cannot be told")
	require.True(t, another, "it cannot be told")
	require.ErrorIs(t, byNumber, os.ErrNoHandle, "a process is not held by its number alone")
	shim, err := findProcess(a.run.Shim)
	require.NoError(t, err)
	require.NoError(t, shim.Release())
}

// Nor does it where all else of the walk can be read: one that fails there is enough.
func TestAShimThatCannotBeReadIsNoOther(t *testing.T) {
	t.Parallel()
	ownMounts(t, func(t *testing.T) {
		a, _ := start(t, sh("sleep 300"))
		require.True(t, inside(a.Pid()))
		unreadable(t, a.run.Shim, "cmdline")

		_, err := tree.AttemptOf(a.Pid())
		agent, why := Inside(a.Pid())

		require.ErrorIs(t, err, syscall.EIO)
		require.ErrorIs(t, why, syscall.EIO)
		require.True(t, agent)
		require.True(t, OfAnother(a.Pid(), a.Marker()), "it cannot be told")
		require.False(t, inside(os.Getpid()))
	})
}

// unreadable has each read of a file of /proc fail that is about a process, until readable is called.
func unreadable(t *testing.T, pid int, name string) (readable func()) {
	t.Helper()
	file := filepath.Join("/proc", strconv.Itoa(pid), name)
	require.NoError(t, unix.Mount("/proc/self/mem", file, "", unix.MS_BIND, "")) // its first byte is nowhere
	readable = sync.OnceFunc(func() { require.NoError(t, unix.Unmount(file, unix.MNT_DETACH)) })
	t.Cleanup(readable)
	return readable
}

// One that is not recorded yet, and is known by its command line alone, lives on too where that cannot be read.
func TestAdoptionOfAShimThatCannotBeRead(t *testing.T) {
	t.Parallel()
	ownMounts(t, func(t *testing.T) {
		a, dir := start(t, sh("sleep 300"))
		require.NoError(t, a.Close())
		known := Known{Marker: a.Marker()}
		readable := unreadable(t, a.run.Shim, "cmdline")

		_, exit, err := Adopt(t.Context(), dir, known)

		require.ErrorIs(t, err, syscall.EIO)
		require.Nil(t, exit)
		require.True(t, alive(a.Pid()))
		readable()
		b, _ := adoptKnown(t, dir, known)
		require.NotNil(t, b)
	})
}

// However few files a spoke may open when it adopts, the agent lives, and is adopted when it may open more: what cannot be read of a
// shim is no proof of its end, however long that takes.
func TestAdoptionWithFewOpenFiles(t *testing.T) {
	t.Parallel()
	if os.Getenv(againName) != t.Name() {
		require.NoError(t, testAgain(t, t.TempDir(), nil))
		return
	}
	var was unix.Rlimit
	require.NoError(t, unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, &was))
	limit := func(n uint64) { _ = unix.Prlimit(0, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: n, Max: was.Max}, nil) }
	for name, recorded := range map[string]bool{"recorded": true, "not recorded yet": false} {
		a, dir := start(t, sh("sleep 300"))
		known, pid := Known{Marker: a.Marker(), Began: true}, a.Pid()
		if recorded {
			known.Shim = a.Shim()
		}
		require.NoError(t, a.Close())
		refused := 0
		for free := range uint64(8) {
			fill := fillBelow(t, 64)
			limit(64 + free)
			b, exit, err := adoptWithin(t.Context(), dir, known, 0) // the second look is too late already
			limit(was.Cur)
			for _, f := range fill {
				require.NoError(t, f.Close())
			}
			require.Nil(t, exit, "%s, with %d files: %+v", name, free, exit)
			require.True(t, alive(pid), "%s, with %d files", name, free)
			if err != nil {
				refused++
				continue
			}
			require.NoError(t, b.Close())
		}
		require.NotZero(t, refused, name)

		c, _ := adoptKnown(t, dir, known)
		require.NotNil(t, c, name)
		require.Equal(t, pid, c.Pid(), name)
	}
}

// fillBelow opens files until every number below n is taken.
func fillBelow(t *testing.T, n uintptr) (list []*os.File) {
	t.Helper()
	for {
		f, err := os.Open(os.DevNull)
		require.NoError(t, err)
		if f.Fd() >= n {
			require.NoError(t, f.Close())
			return list
		}
		list = append(list, f)
	}
}

// inside is [Inside] without why that cannot be told.
func inside(pid int) bool {
	is, _ := Inside(pid)
	return is
}
