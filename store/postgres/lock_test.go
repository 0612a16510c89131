package postgres_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spawnmesh/spawnmesh/store/postgres"
	"github.com/stretchr/testify/require"
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

	require.NoError(t, lock.Close())
	again, err := postgres.Lock(dir)
	require.NoError(t, err)
	require.NoError(t, again.Close())
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
