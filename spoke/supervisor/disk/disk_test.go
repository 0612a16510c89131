package disk

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// reference counts as [Count.Below] has to, with the library.
func reference(t *testing.T, dir string) (u Usage) {
	t.Helper()
	var top syscall.Stat_t
	require.NoError(t, syscall.Stat(dir, &top))
	seen := map[uint64]bool{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		var st syscall.Stat_t
		if path == dir || err != nil || syscall.Lstat(path, &st) != nil {
			return nil
		}
		if st.Dev != top.Dev {
			return filepath.SkipDir
		}
		if !seen[st.Ino] {
			u.Bytes, u.Inodes = u.Bytes+st.Blocks*512, u.Inodes+1
		}
		seen[st.Ino] = true
		return nil
	}))
	return u
}

func count(t *testing.T, dir string) *Count {
	t.Helper()
	c := &Count{Owner: -1}
	require.NoError(t, c.Below(dir))
	return c
}

func TestWhatFilesTake(t *testing.T) {
	t.Parallel()
	dir, outside := t.TempDir(), t.TempDir()
	write := func(name string, size int) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), make([]byte, size), 0o600))
	}
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "a", "b"), 0o700))
	write("one", 1<<20)
	write("a/b/two", 1<<20)
	write("a/.hidden", 1)
	write("..odd", 1)
	require.NoError(t, os.Link(filepath.Join(dir, "one"), filepath.Join(dir, "a", "again")))
	require.NoError(t, os.WriteFile(filepath.Join(outside, "large"), make([]byte, 8<<20), 0o600))
	require.NoError(t, os.Symlink(outside, filepath.Join(dir, "away")))
	sparse, err := os.Create(filepath.Join(dir, "sparse"))
	require.NoError(t, err)
	require.NoError(t, sparse.Truncate(1<<40))
	require.NoError(t, sparse.Close())

	c := count(t, dir)

	require.Equal(t, reference(t, dir), c.Usage)
	require.Equal(t, int64(8), c.Inodes, "a b one two .hidden ..odd away sparse")
	require.GreaterOrEqual(t, c.Bytes, int64(2<<20))
	require.Less(t, c.Bytes, int64(3<<20), "nothing twice, nothing outside, no hole")
	require.False(t, c.Ended())
	require.Error(t, (&Count{}).Below(filepath.Join(dir, "away")), "the directory itself is no link either")
	require.Error(t, (&Count{}).Below(filepath.Join(dir, "none")))
}

// library is a directory with many files.
func library(t testing.TB) string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOROOT").Output()
	require.NoError(t, err)
	return filepath.Join(strings.TrimSpace(string(out)), "src")
}

func TestALargeTreeIsCountedAsByTheLibrary(t *testing.T) {
	t.Parallel()
	dir := library(t)

	require.Equal(t, reference(t, dir), count(t, dir).Usage)
}

// /dev has other file systems in it on every Linux.
func TestOtherFileSystemsAreNotCounted(t *testing.T) {
	t.Parallel()
	other := false
	var top, st syscall.Stat_t
	require.NoError(t, syscall.Stat("/dev", &top))
	for _, name := range []string{"/dev/pts", "/dev/shm", "/dev/mqueue"} {
		other = other || syscall.Stat(name, &st) == nil && st.Dev != top.Dev
	}
	require.True(t, other)

	require.Eventually(t, func() bool { return reference(t, "/dev") == count(t, "/dev").Usage }, 10*time.Second, time.Millisecond)
}

func TestCountingEndsAboveTheLimit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i := range 2000 {
		require.NoError(t, os.WriteFile(filepath.Join(dir, strings.Repeat("x", 100)+string(rune('a'+i%26))+time.Duration(i).String()), nil, 0o600))
	}
	c := &Count{Owner: -1, Most: Usage{Inodes: 10}}
	require.NoError(t, c.Below(dir))
	require.True(t, c.Ended())
	require.Greater(t, c.Inodes, int64(10))
	require.Less(t, c.Inodes, int64(1000))

	c = &Count{Owner: -1, Stop: func() bool { return true }}
	require.NoError(t, c.Below(dir))
	require.Zero(t, c.Inodes)

	c = &Count{Owner: int64(os.Geteuid()) + 1}
	require.NoError(t, c.Below(dir))
	require.Zero(t, c.Inodes, "they are somebody else's")
}

func TestDirectoriesThatAreTooDeep(t *testing.T) {
	t.Parallel()
	for levels, deep := range map[int]bool{MaxLevels: false, MaxLevels + 1: true} {
		dir := t.TempDir()
		require.NoError(t, os.MkdirAll(filepath.Join(dir, strings.Repeat("d/", levels)), 0o700))

		c := count(t, dir)

		require.Equal(t, deep, c.Deep)
		require.Equal(t, int64(levels), c.Inodes)
	}
}

func TestFilesWithoutAName(t *testing.T) {
	t.Parallel()
	f, err := os.CreateTemp(t.TempDir(), "")
	require.NoError(t, err)
	defer f.Close()
	_, err = f.Write(make([]byte, 1<<20))
	require.NoError(t, err)
	twice, err := unix.Dup(int(f.Fd()))
	require.NoError(t, err)
	defer unix.Close(twice)
	held := func() Usage {
		c := &Count{Owner: -1}
		c.Held([]int{os.Getpid(), os.Getpid(), 1 << 22})
		return c.Usage
	}
	before := held()
	require.NoError(t, os.Remove(f.Name()))
	memory, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
	require.NoError(t, err)
	defer unix.Close(memory)
	_, err = unix.Write(memory, make([]byte, 1<<20))
	require.NoError(t, err)

	require.Eventually(t, func() bool { // other tests open files, too
		now := held()
		return now.Inodes-before.Inodes == 2 && now.Bytes-before.Bytes >= 2<<20 && now.Bytes-before.Bytes < 3<<20
	}, 10*time.Second, time.Millisecond)
}

// A directory that becomes a link while it is counted leads nowhere.
func TestLinksThatComeAndGo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	name, link := filepath.Join(dir, "d"), filepath.Join(dir, "link")
	require.NoError(t, os.MkdirAll(filepath.Join(name, "sub"), 0o700))
	require.NoError(t, os.Symlink(library(t), link))
	over, done := make(chan struct{}), sync.WaitGroup{}
	done.Go(func() {
		for {
			select {
			case <-over:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, name, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE)
			}
		}
	})
	t.Cleanup(func() { close(over); done.Wait() })

	for range 5000 {
		c := count(t, dir)
		require.LessOrEqual(t, c.Inodes, int64(6))
	}
}

func TestWhatFileSystemsHold(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()

	once, whole, err := Used([]string{dir})
	require.NoError(t, err)
	require.Positive(t, once.Bytes)
	require.Equal(t, once.Inodes > 0, whole)
	require.Eventually(t, func() bool { // others write, too
		once, _, _ := Used([]string{dir})
		twice, _, _ := Used([]string{dir, dir})
		return once == twice
	}, 10*time.Second, time.Millisecond)
	_, _, err = Used([]string{filepath.Join(dir, "none")})
	require.Error(t, err)
}

func BenchmarkCount(b *testing.B) {
	dir := library(b)
	var files int64
	for b.Loop() {
		c := &Count{Owner: -1}
		require.NoError(b, c.Below(dir))
		files += c.Inodes
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(files), "ns/file")
}

func BenchmarkUsed(b *testing.B) {
	dirs := []string{b.TempDir(), b.TempDir(), b.TempDir(), "/tmp", "/dev/shm"}
	for b.Loop() {
		_, _, err := Used(dirs)
		require.NoError(b, err)
	}
}
