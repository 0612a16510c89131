package remove_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/spawnmesh/spawnmesh/internal/remove"
)

// deep makes a directory within a directory so many times, each by a long name. It returns how far it came.
func deep(t *testing.T, dir string, levels int) (n int) {
	t.Helper()
	name := strings.Repeat("n", 250)
	at, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	require.NoError(t, err)
	for n = range levels {
		require.NoError(t, unix.Mkdirat(at, name, 0o700))
		next, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		require.NoError(t, err)
		require.NoError(t, unix.Close(at))
		if at = next; n%1000 == 0 {
			fd, err := unix.Openat(at, "file", unix.O_CREAT|unix.O_WRONLY, 0o600)
			require.NoError(t, errors.Join(err, unix.Close(fd)))
		}
	}
	require.NoError(t, unix.Close(at))
	return n + 1
}

// open counts the descriptors of this process that lead below a directory.
func open(t *testing.T, dir string) (n int) {
	list, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	for _, e := range list {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.HasPrefix(to, dir) {
			n++
		}
	}
	return n
}

// A tree of any depth is removed with a few descriptors, though no path leads to its end.
func TestADeepTreeIsRemoved(t *testing.T) {
	t.Parallel()
	dir := filepath.Join("/dev/shm", "spawnmesh-test-remove-"+strconv.Itoa(os.Getpid())) // a disk takes a minute to make it
	require.NoError(t, os.Mkdir(dir, 0o700))
	require.Equal(t, 20_000, deep(t, dir, 20_000))
	most, done := 0, make(chan error, 1)
	go func() { done <- remove.All(dir) }()
	for {
		select {
		case err := <-done:
			require.NoError(t, err)
			require.NoDirExists(t, dir)
			require.LessOrEqual(t, most, 3)
			return
		default:
			most = max(most, open(t, dir))
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// Whatever is in a directory goes, and nothing that a link leads to.
func TestAnythingIsRemoved(t *testing.T) {
	t.Parallel()
	outer := t.TempDir()
	dir := filepath.Join(outer, "d")
	for _, name := range []string{"a/b/c", "a/x/c", "removed-1/x/y", "removed-2", "empty", "closed/in/it", "read/only"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, name), 0o700))
	}
	require.NoError(t, os.MkdirAll(outer+"/kept/in", 0o700))
	require.NoError(t, os.Symlink(outer+"/kept", dir+"/a/link"))
	require.NoError(t, os.Symlink(outer+"/kept", dir+"/removed-3"))
	require.NoError(t, syscall.Mkfifo(dir+"/a/b/pipe", 0))
	for i := range 3000 {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "a/b", strings.Repeat("f", 1+i%200)+string(rune('a'+i/200))), nil, 0o400))
	}
	require.NoError(t, os.Chmod(dir+"/closed/in", 0))
	require.NoError(t, os.Chmod(dir+"/closed", 0))
	require.NoError(t, os.Chmod(dir+"/read", 0o500))
	require.NoError(t, os.Chmod(dir, 0o500))

	require.NoError(t, remove.All(dir))

	list, err := os.ReadDir(outer)
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.DirExists(t, outer+"/kept/in")
	require.NoError(t, remove.All(dir), "it is gone")
	require.NoError(t, os.Symlink(outer+"/kept", dir))
	require.NoError(t, remove.All(dir), "a link goes, and not what it leads to")
	require.DirExists(t, outer+"/kept/in")
	require.NoError(t, os.WriteFile(dir, nil, 0o600))
	require.NoError(t, remove.All(dir))
	require.ErrorIs(t, remove.All(dir+"/x/y"), nil)
	require.NoFileExists(t, dir)
}
