package supervisor

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
)

// detached starts an agent with a child of a session of its own, which outlives them if it is not ended.
func detached(t *testing.T, dir string) (a *Agent, child int) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "pid")
	spec := sh(`setsid sleep 600 </dev/null >/dev/null 2>&1 & echo $! >"$0"; exec sleep 600`)
	spec.Argv, spec.NoCgroup = append(spec.Argv, file), true
	a, err := Start(t.Context(), dir, spec)
	require.NoError(t, err)
	endAfter(t, a)
	return a, pids(t, file, 1)[0]
}

// Where no file can be made in its directory the end of an attempt is not proven; what its dead shim has left is ended all the same.
func TestADeadShimOnAFullDisk(t *testing.T) {
	t.Parallel()
	ownMounts(t, func(t *testing.T) {
		for name, gone := range map[string][]string{
			"whose tombstone cannot be made": {},
			"whose lock is gone":             {attempt.LockFile},
			"whose directory is gone":        {""},
		} {
			t.Run(name+", while its spoke looks", func(t *testing.T) {
				a, child, free := onFullDisk(t, gone)

				require.NoError(t, a.shim.Kill())

				eventually(t, "the end of its tree", func() bool { return !alive(child) })
				free()
				require.Equal(t, Lost, ended(t, a).Outcome)
			})
			t.Run(name+", while no spoke runs", func(t *testing.T) {
				a, child, free := onFullDisk(t, gone)
				known := Known{Marker: a.Marker(), Shim: a.Shim(), Began: true}
				require.NoError(t, a.Close())
				require.NoError(t, syscall.Kill(known.Shim.Pid, syscall.SIGKILL))
				eventually(t, "the end of the shim", func() bool { return !alive(known.Shim.Pid) })
				crowd(t, filepath.Dir(a.dir)) // it had the directory open

				_, _, err := Adopt(t.Context(), a.dir, known)

				require.ErrorIs(t, err, syscall.ENOSPC)
				require.Equal(t, attempt.KillRetry, pauseAfter(err, time.Minute), "it is looked for ever more rarely")
				require.False(t, alive(child))
				free()
				_, exit := adoptKnown(t, a.dir, known)
				require.Equal(t, Lost, exit.Outcome)
			})
		}
	})
}

// A kill of an agent whose shim has ended is over although its disk keeps the end from being recorded: nothing of it lives.
func TestAKillOnAFullDisk(t *testing.T) {
	t.Parallel()
	ownMounts(t, func(t *testing.T) {
		a, child, _ := onFullDisk(t, nil)
		require.NoError(t, a.shim.Kill())
		eventually(t, "the end of its tree", func() bool { return !alive(child) })
		select {
		case <-a.Done():
			require.Fail(t, "nobody has ended it, and the disk may be mended")
		case <-time.After(2 * recordPatience):
		}

		require.NoError(t, a.Kill(t.Context(), "the test says so", 0))

		require.Equal(t, Lost, ended(t, a).Outcome)
	})
}

// What a shim has started that has no marker is not all that lives of an attempt: its shim does.
func TestAShimIsOfItsAttempt(t *testing.T) {
	t.Parallel()
	spec := sh(`exec env -i sleep 600`)
	spec.NoCgroup = true
	a, _ := start(t, spec)
	known := Known{Marker: a.Marker()}
	eventually(t, "its program without a marker", func() bool { return !remains(known.saved()) })

	require.True(t, Lives(known))

	require.NoError(t, a.Kill(t.Context(), "the test says so", 0))
	eventually(t, "the end of its shim", func() bool { return !Lives(known) })
}

// Looks follow each other quickly where a shim may answer, and rarely where nobody is waited for.
func TestHowOftenAShimIsLookedFor(t *testing.T) {
	t.Parallel()
	for want, err := range map[time.Duration]error{time.Second: nil, attempt.KillRetry: unrecorded{syscall.ENOSPC}} {
		require.Equal(t, 20*time.Millisecond, pauseAfter(err, 0))
		require.Equal(t, 40*time.Millisecond, pauseAfter(err, 20*time.Millisecond))
		require.Equal(t, want, pauseAfter(err, time.Minute))
	}
	require.Equal(t, time.Second, pauseAfter(syscall.EMFILE, time.Minute))
	require.Equal(t, attempt.KillRetry, pauseAfter(&Incomplete{}, 0))
}

// onFullDisk starts an agent, takes files of its directory away, and leaves no room for another file there until free is called.
func onFullDisk(t *testing.T, gone []string) (a *Agent, child int, free func()) {
	t.Helper()
	disk := t.TempDir()
	require.NoError(t, unix.Mount("tmpfs", disk, "tmpfs", 0, "nr_inodes=60"))
	t.Cleanup(func() { _ = unix.Unmount(disk, unix.MNT_DETACH) })
	a, child = detached(t, filepath.Join(disk, "attempt"))
	for _, name := range gone {
		require.NoError(t, os.RemoveAll(filepath.Join(a.dir, name)))
	}
	crowd(t, disk)
	return a, child, func() {
		for i := range 5 {
			require.NoError(t, os.Remove(filepath.Join(disk, fmt.Sprint("f", i))))
		}
	}
}

// crowd makes files until there is no room for one more.
func crowd(t *testing.T, disk string) {
	t.Helper()
	for i := 0; ; i++ {
		if err := os.WriteFile(filepath.Join(disk, fmt.Sprint("f", i)), nil, 0o600); err != nil {
			require.ErrorIs(t, err, syscall.ENOSPC)
			return
		}
	}
}

// A file that somebody has a lease on cannot be opened: in the place of the lock it keeps nothing alive.
func TestALeaseInPlaceOfTheLock(t *testing.T) {
	t.Parallel()
	a, child := detached(t, filepath.Join(t.TempDir(), "attempt"))
	lock := filepath.Join(a.dir, attempt.LockFile)
	require.NoError(t, os.Remove(lock))
	f, err := os.OpenFile(lock, os.O_RDWR|os.O_CREATE, 0o600)
	require.NoError(t, err)
	defer f.Close()
	_, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK)
	require.NoError(t, err)

	require.NoError(t, a.shim.Kill())

	got := ended(t, a)
	require.Equal(t, Lost, got.Outcome)
	require.ErrorIs(t, got.Damage, attempt.ErrClosed)
	require.False(t, alive(child))
}
