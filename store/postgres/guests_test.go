package postgres_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/store/postgres"
)

// lockedServer runs a server here under the directory's lock.
func lockedServer(t *testing.T, dir string) (*postgres.InstanceLock, *postgres.Cluster) {
	t.Helper()
	lock, err := postgres.LockBriefly(dir)
	require.NoError(t, err)
	t.Cleanup(func() { lock.Close() })
	c := startCluster(t, postgres.Config{Dir: dir})
	require.NoError(t, lock.AdmitGuests())
	return lock, c
}

func TestOwnerWaitsForItsGuests(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	lock, c := lockedServer(t, dir)
	one, err := postgres.Visit(t.Context(), dir)
	require.NoError(t, err)
	two, err := postgres.Visit(t.Context(), dir)
	require.NoError(t, err)
	require.Equal(t, c.URL(), one.URL())
	require.False(t, one.Leaving())
	alone := make(chan error, 1)
	go func() { alone <- lock.AwaitGuests(context.WithoutCancel(t.Context()), time.Minute) }()
	eventually(t, "the owner says that it leaves", one.Leaving)

	_, err = postgres.Visit(t.Context(), dir)
	require.ErrorIs(t, err, postgres.ErrNotServing, "nobody enters any more")
	require.NoError(t, one.Close())
	select {
	case err := <-alone:
		require.FailNow(t, "the other guest was not waited for", "%v", err)
	case <-time.After(50 * time.Millisecond):
	}
	require.NoError(t, two.Close())
	require.NoError(t, <-alone)

	_, err = postgres.Visit(t.Context(), dir)
	require.ErrorIs(t, err, postgres.ErrNotServing)
	require.NoError(t, c.Close(t.Context()))
	require.NoError(t, lock.Close())
	lockedServer(t, dir)
	again, err := postgres.Visit(t.Context(), dir)
	require.NoError(t, err, "the next owner lets guests in again")
	require.NoError(t, again.Close())
}

func TestOwnerDoesNotWaitForEver(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	lock, _ := lockedServer(t, dir)
	guest, err := postgres.Visit(t.Context(), dir)
	require.NoError(t, err)
	defer guest.Close()
	began := time.Now()

	require.NoError(t, lock.AwaitGuests(t.Context(), 30*time.Millisecond))

	require.GreaterOrEqual(t, time.Since(began), 30*time.Millisecond)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, lock.AwaitGuests(ctx, time.Hour))
}

func TestKilledGuestIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	lock, err := postgres.Lock(dir)
	require.NoError(t, err)
	t.Cleanup(func() { lock.Close() })
	guest := exec.Command("flock", "--no-fork", "--shared", filepath.Join(dir, "guests.lock"), "sh", "-c", "echo in; read line")
	_, err = guest.StdinPipe()
	require.NoError(t, err)
	out, err := guest.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, guest.Start())
	_, err = io.ReadFull(out, make([]byte, len("in\n")))
	require.NoError(t, err)
	alone := make(chan error, 1)
	go func() { alone <- lock.AwaitGuests(context.WithoutCancel(t.Context()), time.Minute) }()
	select {
	case err := <-alone:
		require.FailNow(t, "the guest was not waited for", "%v", err)
	case <-time.After(50 * time.Millisecond):
	}

	require.NoError(t, guest.Process.Kill())

	require.NoError(t, <-alone)
	require.Error(t, guest.Wait())
}

func TestVisitWhereNothingServes(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		is      func(t *testing.T, dir string)
		because error
	}{
		"nobody was there yet": {func(*testing.T, string) {}, postgres.ErrNotServing},
		"the server has stopped": {func(t *testing.T, dir string) {
			require.NoError(t, startCluster(t, postgres.Config{Dir: dir}).Close(t.Context()))
		}, postgres.ErrNotServing},
		"the owner is still preparing": {func(t *testing.T, dir string) {
			lock, err := postgres.Lock(dir)
			require.NoError(t, err)
			t.Cleanup(func() { lock.Close() })
			startCluster(t, postgres.Config{Dir: dir})
		}, postgres.ErrNotServing},
		"the socket's directory is somebody else's": {func(t *testing.T, dir string) {
			startCluster(t, postgres.Config{Dir: dir})
			run := filepath.Join(dir, "run")
			require.NoError(t, os.Rename(run, run+"2"))
			require.NoError(t, os.Symlink(run+"2", run))
		}, postgres.ErrNotServing},
		"the database is elsewhere": {func(t *testing.T, dir string) {
			lock, err := postgres.Lock(dir)
			require.NoError(t, err)
			t.Cleanup(func() { lock.Close() })
			require.NoError(t, lock.ServesElsewhere())
		}, postgres.ErrElsewhere},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := newDir(t)
			tt.is(t, dir)

			_, err := postgres.Visit(t.Context(), dir)

			require.ErrorIs(t, err, tt.because)
			require.ErrorContains(t, err, dir)
		})
	}
}

// A server without a free place is there: it is full, not gone.
func TestAFullServerTakesGuests(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	lock, err := postgres.Lock(dir)
	require.NoError(t, err)
	t.Cleanup(func() { lock.Close() })
	c := startCluster(t, postgres.Config{Dir: dir, Settings: map[string]string{"max_connections": "4", "superuser_reserved_connections": "0", "max_wal_senders": "0"}})
	require.NoError(t, lock.AdmitGuests())
	for err == nil {
		var conn *pgx.Conn
		if conn, err = pgx.Connect(t.Context(), c.URL()); err == nil {
			t.Cleanup(func() { _ = conn.Close(context.Background()) })
		}
	}
	full, ok := errors.AsType[*pgconn.PgError](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, "53300", full.Code)

	guest, err := postgres.Visit(t.Context(), dir)

	require.NoError(t, err)
	require.NoError(t, guest.Close())
}

func TestWhatSaysThatADatabaseWentAway(t *testing.T) {
	t.Parallel()
	for what, tt := range map[string]struct {
		err  error
		away bool
	}{
		"nobody listens":           {&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, true},
		"there is no socket":       {&net.OpError{Op: "dial", Err: syscall.ENOENT}, true},
		"no answer in time":        {context.DeadlineExceeded, true},
		"it broke off":             {io.ErrUnexpectedEOF, true},
		"it stops":                 {&pgconn.PgError{Code: "57P01"}, true},
		"it starts":                {&pgconn.PgError{Code: "57P03"}, true},
		"it is full":               {&pgconn.PgError{Code: "53300"}, false},
		"the socket is not for us": {&net.OpError{Op: "dial", Err: syscall.EACCES}, false},
		"something else":           {errors.New("relation does not exist"), false},
		"nothing":                  {nil, false},
	} {
		require.Equal(t, tt.away, postgres.Away(tt.err), what)
	}
}

func TestBriefOwnerSaysSo(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		lock  func(dir string) (*postgres.InstanceLock, error)
		brief bool
	}{"for one act": {postgres.LockBriefly, true}, "for good": {postgres.Lock, false}} {
		dir := newDir(t)
		lock, err := tt.lock(dir)
		require.NoError(t, err, name)

		_, err = postgres.Lock(dir)

		var inUse *postgres.InUseError
		require.ErrorAs(t, err, &inUse, name)
		require.Equal(t, tt.brief, inUse.Brief, name)
		require.Equal(t, os.Getpid(), inUse.PID, name)
		require.WithinDuration(t, time.Now(), inUse.Since, time.Minute, name)
		require.NoError(t, lock.Close())
	}
}
