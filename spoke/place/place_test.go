package place_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/spawnmesh/spawnmesh/spoke/hostfault"
	"github.com/spawnmesh/spawnmesh/spoke/place"
)

func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	return dir
}

// What was opened stays what it is, and has the path that it had, whatever is put there.
func TestAPlaceStays(t *testing.T) {
	t.Parallel()
	dir := root(t)
	at, link := filepath.Join(dir, "at"), filepath.Join(dir, "link")
	require.NoError(t, os.Mkdir(at, 0o700))
	require.NoError(t, os.Symlink("at", link))

	p, err := place.OpenDir(link)

	require.NoError(t, err)
	defer p.Close()
	require.Equal(t, at, p.Path())
	require.NoError(t, os.Rename(at, at+"2"))
	require.NoError(t, os.Symlink("/etc", at))
	was, err := os.Stat(at + "2")
	require.NoError(t, err)
	is, err := os.Stat(p.Link())
	require.NoError(t, err)
	require.True(t, os.SameFile(was, is))
	again, err := place.OpenDir(at + "2")
	require.NoError(t, err)
	defer again.Close()
	require.Equal(t, again.ID(), p.ID())
}

// Links that the kernel makes up lead where no path says, and nothing is opened that is no directory, or not there.
func TestWhatIsNoPlace(t *testing.T) {
	t.Parallel()
	dir := root(t)
	f, err := os.Open(dir)
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	require.NoError(t, unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	for path, want := range map[string]error{"/proc/self/cwd": unix.ELOOP, "/proc/self/root/etc": unix.ELOOP, dir + "/file": unix.ENOTDIR, dir + "/pipe": unix.ENOTDIR, dir + "/none": unix.ENOENT} {
		_, err := place.OpenDir(path)
		require.ErrorIs(t, err, want, path)
	}
	deleted := filepath.Join(dir, "deleted")
	require.NoError(t, os.Mkdir(deleted, 0o700))
	require.NoError(t, os.Chdir(deleted)) // of this process: no other test of it needs where it is
	require.NoError(t, os.Remove(deleted))
	require.NoError(t, os.Mkdir(deleted+" (deleted)", 0o700)) // what the kernel calls it now

	_, err = place.OpenDir(".")

	require.ErrorIs(t, err, place.ErrMoved)
	require.True(t, place.Fault(err), "it may be there the next time")
	require.False(t, hostfault.NoRoom(err))
}

// What is opened directly is behind no link, wherever on the way one is.
func TestADirectPlaceIsBehindNoLink(t *testing.T) {
	t.Parallel()
	dir := root(t)
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "at", "inside"), 0o700))
	require.NoError(t, os.Symlink("at", filepath.Join(dir, "link")))
	for name, want := range map[string]error{"link": unix.ELOOP, "link/inside": unix.ELOOP, "none": unix.ENOENT} {
		_, err := place.OpenDirect(filepath.Join(dir, name))
		require.ErrorIs(t, err, want, name)
		require.False(t, place.Fault(err), name)
	}

	p, err := place.OpenDirect(filepath.Join(dir, "at", "inside"))

	require.NoError(t, err)
	defer p.Close()
	require.Equal(t, filepath.Join(dir, "at", "inside"), p.Path())
}

// A fault of the host is told from what is, or is not, at a path, as the kernel says it.
func TestWhatIsAFaultOfTheHost(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		list          []error
		fault, noRoom bool
	}{
		{[]error{unix.EMFILE, unix.ENFILE, unix.ENOMEM}, true, true},
		{[]error{unix.EIO, unix.ESTALE, unix.ETIMEDOUT, unix.ENOTCONN, place.ErrMoved}, true, false},
		{[]error{unix.ENOENT, unix.ENOTDIR, unix.ELOOP, unix.EACCES, unix.ENAMETOOLONG, nil}, false, false},
	} {
		for _, err := range tt.list {
			opened := fmt.Errorf("opening: %w", &os.PathError{Op: "open", Path: "/x", Err: err})
			require.Equal(t, tt.fault, place.Fault(opened), "%v", err)
			require.Equal(t, tt.noRoom, hostfault.NoRoom(opened), "%v", err)
		}
	}
}

// What was opened, and cannot be looked for as there is room for no second file, is told from a host that has room for nothing:
// that something could be opened tells of the path. Other tests need files: none of them runs beside this one.
func TestAPlaceThatCannotBeLookedFor(t *testing.T) {
	dir := t.TempDir()
	next, err := os.Open(dir)
	require.NoError(t, err)
	free := next.Fd()
	require.NoError(t, next.Close())
	var was unix.Rlimit
	require.NoError(t, unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, &was))
	for files, noRoom := range map[uint64]bool{0: true, 1: false} {
		require.NoError(t, unix.Prlimit(0, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(free) + files, Max: was.Max}, nil))

		_, err := place.OpenDir(dir)

		require.NoError(t, unix.Prlimit(0, unix.RLIMIT_NOFILE, &was, nil))
		require.Equal(t, noRoom, hostfault.NoRoom(err), "room for %d: %v", files, err)
		require.True(t, place.Fault(err), "room for %d: %v", files, err)
	}
}

func TestWhatCanBeExecuted(t *testing.T) {
	t.Parallel()
	dir := root(t)
	for name, mode := range map[string]os.FileMode{"tool": 0o711, "text": 0o644} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, mode))
	}
	for name, want := range map[string]bool{"tool": true, "text": false, ".": false} {
		p, err := place.Open(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Equal(t, want, p.Runnable(), name)
		p.Close()
		p.Close()
	}
	(*place.Place)(nil).Close()
	require.Nil(t, (*place.Place)(nil).File())
}
