package postgres_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/store/postgres"
)

func TestLockKeepsASecondInstanceOut(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(newDir(t), "data")
	lock, err := postgres.Lock(dir)
	require.NoError(t, err)

	_, err = postgres.Lock(dir)

	var inUse *postgres.InUseError
	require.ErrorAs(t, err, &inUse)
	require.Equal(t, dir, inUse.Dir)
	require.Equal(t, os.Getpid(), inUse.PID)
	require.WithinDuration(t, time.Now(), inUse.Since, time.Minute)
	require.Regexp(t, `^/.*/data is in use by another running instance \(pid \d+ since 2.*Z\): stop that one, or give this one a directory of its own$`, err.Error())

	require.Equal(t, inUse, postgres.Running(dir))
	require.NoError(t, lock.Close())
	require.Nil(t, postgres.Running(dir))
	again, err := postgres.Lock(dir)
	require.NoError(t, err)
	require.NoError(t, again.Close())
	short, err := postgres.LockBriefly(dir)
	require.NoError(t, err)
	require.Nil(t, postgres.Running(dir), "it will be free again soon")
	require.NoError(t, short.Close())
}

func TestLockEndsWithItsProcess(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	one := startInstance(t, dir)
	one.ready(t)
	_, err := postgres.Lock(dir)
	var inUse *postgres.InUseError
	require.ErrorAs(t, err, &inUse)
	require.Equal(t, one.cmd.Process.Pid, inUse.PID)

	require.NoError(t, one.cmd.Process.Kill())
	_, err = one.cmd.Process.Wait()
	require.NoError(t, err)

	lock, err := postgres.Lock(dir)
	require.NoError(t, err, "the file still names the dead process, and nobody holds it")
	require.NoError(t, lock.Close())
}

// A child that shares the descriptors of a killed owner keeps its lock for a
// moment: the next start waits for that, and no longer.
func TestLockOfADeadOwnerIsWaitedFor(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	path := filepath.Join(dir, "instance.lock")
	dead := exec.Command("true")
	require.NoError(t, dead.Run())
	require.NoError(t, os.WriteFile(path, fmt.Appendf(nil, "pid %d since 2026-01-02T03:04:05Z\n", dead.Process.Pid), 0o600))
	// The shell takes the lock and hands its descriptor to nobody but itself.
	child := exec.Command("flock", path, "sh", "-c", "echo taken; read line")
	in, err := child.StdinPipe()
	require.NoError(t, err)
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	_, err = io.ReadFull(out, make([]byte, len("taken\n")))
	require.NoError(t, err)
	got := make(chan error, 1)
	go func() {
		lock, err := postgres.Lock(dir)
		if err == nil {
			err = lock.Close()
		}
		got <- err
	}()

	select {
	case err := <-got:
		require.FailNow(t, "the lock was not waited for", "%v", err)
	case <-time.After(100 * time.Millisecond):
	}
	require.NoError(t, in.Close())
	require.Error(t, child.Wait(), "read at the end of its input fails")

	require.NoError(t, <-got)
}

func TestOneOfManyGetsAFreshDirectory(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(newDir(t), "data")
	const callers = 8
	locks, errs := make(chan *postgres.InstanceLock, callers), make(chan error, callers)
	for range callers {
		go func() {
			lock, err := postgres.Lock(dir)
			if err == nil {
				locks <- lock
			}
			errs <- err
		}()
	}

	winners := 0
	for range callers {
		var inUse *postgres.InUseError
		if err := <-errs; err == nil {
			winners++
		} else {
			require.ErrorAs(t, err, &inUse)
		}
	}

	require.Equal(t, 1, winners)
	require.NoError(t, (<-locks).Close())
}
