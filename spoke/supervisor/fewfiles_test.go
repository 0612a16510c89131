package supervisor

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
)

// However few files a spoke may open when it looks what an ended shim has left: what cannot be read is not taken for what has
// ended. The limit is one of a process, so this is one of its own.
func TestAnEndIsNotProvenWithFewOpenFiles(t *testing.T) {
	t.Parallel()
	if os.Getenv(againName) != t.Name() {
		require.NoError(t, testAgain(t, t.TempDir(), nil))
		return
	}
	t.Run("of what has the marker", func(t *testing.T) {
		spec, dir, file := escaping(t, "true")
		a, err := Start(t.Context(), dir, spec)
		require.NoError(t, err)
		require.NoError(t, a.Close())
		child := escaped(t, dir, file)
		_ = unix.Kill(a.run.Shim, unix.SIGKILL)

		notOverWhileAlive(t, dir, Known{Marker: a.Marker(), Began: true}, child)
	})
	t.Run("of what has its cgroup only", func(t *testing.T) {
		if hostLevel(t) != attempt.LevelCgroup {
			return
		}
		file := filepath.Join(t.TempDir(), "pid")
		spec := sh(`(env -i setsid sh -c 'echo $$ >"$0"; exec sleep 600' "$0" &); sleep 600`)
		spec.Argv = append(spec.Argv, file)
		a, dir := start(t, spec)
		child := pids(t, file, 1)[0]
		require.NoError(t, a.Close())
		require.NoError(t, unix.Kill(a.run.Shim, unix.SIGKILL))

		notOverWhileAlive(t, dir, Known{Marker: a.Marker(), Began: true}, child)
	})
}

// What may have the marker, and cannot be asked for it, may be of the attempt.
func TestAnEndIsNotProvenWhereAMarkerCannotBeRead(t *testing.T) {
	t.Parallel()
	ownMounts(t, func(t *testing.T) {
		spec, dir, file := escaping(t, "true")
		a, err := Start(t.Context(), dir, spec)
		require.NoError(t, err)
		require.NoError(t, a.Close())
		child, known := escaped(t, dir, file), Known{Marker: a.Marker(), Began: true}
		// It dies with its shim, but not at once; until then its child is known by descent, and asked for nothing.
		eventually(t, "the end of the agent", func() bool { return !alive(a.Pid()) })
		readable := unreadable(t, child, "environ")

		gone := CheckGone(dir, known)
		_, exit, err := Adopt(t.Context(), dir, known)

		require.Error(t, gone)
		require.Nil(t, exit)
		require.ErrorIs(t, err, syscall.EIO)
		require.True(t, alive(child))
		readable()
		_, exit = adoptKnown(t, dir, known)
		require.Equal(t, Lost, exit.Outcome)
		require.False(t, alive(child))
	})
}

// notOverWhileAlive asks whether an attempt is over, with more files from time to time, until it is.
func notOverWhileAlive(t *testing.T, dir string, known Known, child int) {
	t.Helper()
	var was unix.Rlimit
	require.NoError(t, unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, &was))
	refused := false
	for free := range uint64(12) {
		fill := fillBelow(t, 64)
		require.NoError(t, unix.Prlimit(0, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 64 + free, Max: was.Max}, nil))
		gone := CheckGone(dir, known)
		lived := alive(child)
		_, exit, err := Adopt(t.Context(), dir, known)
		require.NoError(t, unix.Prlimit(0, unix.RLIMIT_NOFILE, &was, nil))
		for _, f := range fill {
			require.NoError(t, f.Close())
		}
		if !lived { // it could be read by nobody
			lived = alive(child)
		}
		require.False(t, gone == nil && lived, "gone, with %d files", free)
		require.False(t, exit != nil && alive(child), "over, with %d files: %+v", free, exit)
		if exit != nil {
			require.True(t, refused)
			return
		}
		require.NotErrorIs(t, err, syscall.ESRCH)
		refused = true
	}
	require.Fail(t, "it does not end")
}
