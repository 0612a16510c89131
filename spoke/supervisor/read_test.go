package supervisor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
)

// readAll reads a stream from its beginning, in pieces, until it has ended.
func readAll(t *testing.T, dir string, stream Stream, limit int) (string, Output) {
	t.Helper()
	var all strings.Builder
	for deadline := time.Now().Add(15 * time.Second); time.Now().Before(deadline); {
		p, err := Read(dir, stream, int64(all.Len()), limit, 0)
		require.NoError(t, err)
		require.LessOrEqual(t, len(p.Data), limit)
		all.Write(p.Data)
		if p.Ended {
			return all.String(), p.Output
		}
		require.Zero(t, p.Output)
	}
	require.FailNow(t, "the stream does not end")
	return "", Output{}
}

func TestReadFollowsAnAgent(t *testing.T) {
	t.Parallel()
	gate := filepath.Join(t.TempDir(), "gate")
	spec := sh("printf '%0100d' 1; while ! [ -e " + gate + " ]; do sleep 0.01; done; printf '%0300d' 2; printf ee >&2")
	spec.OutputCap = 200
	a, dir := start(t, spec)
	eventually(t, "the first words", func() bool {
		p, err := Read(dir, Stdout, 90, 20, 0)
		require.NoError(t, err)
		require.False(t, p.Ended)
		return string(p.Data) == "0000000001"
	})
	p, err := Read(dir, Stderr, 0, 20, 0)
	require.NoError(t, err)
	require.Equal(t, Piece{Data: []byte{}}, p)

	require.NoError(t, os.WriteFile(gate, nil, 0o600))

	for _, limit := range []int{1, 7, 64, 4096} {
		out, said := readAll(t, dir, Stdout, limit)
		exit := ended(t, a)
		require.Equal(t, read(t, dir, "stdout"), out)
		require.Equal(t, exit.Stdout, said)
		require.Equal(t, []Gap{{From: 100, To: 300, At: 100}}, said.Gaps)
		errs, said := readAll(t, dir, Stderr, limit)
		require.Equal(t, "ee", errs)
		require.Equal(t, exit.Stderr, said)
	}
	p, err = Read(dir, Stdout, 1<<40, 10, 0)
	require.NoError(t, err)
	require.Empty(t, p.Data)
	require.True(t, p.Ended)
}

// What a killed shim still held is lost, and both the file and whoever reads it
// say so.
func TestReadOfALostAttempt(t *testing.T) {
	t.Parallel()
	full := filepath.Join(t.TempDir(), "full")
	spec := sh("printf '%0100d' 1; touch " + full + "; exec sleep 600")
	spec.OutputCap = 100
	a, dir := start(t, spec)
	eventually(t, "the head is full", func() bool {
		_, err := os.Stat(full)
		return err == nil && len(read(t, dir, "stdout")) == 50
	})
	before, err := Read(dir, Stdout, 0, 1000, 0)
	require.NoError(t, err)
	require.False(t, before.Ended)

	require.NoError(t, a.shim.Kill())

	require.Equal(t, Lost, ended(t, a).Outcome)
	out, said := readAll(t, dir, Stdout, 1000)
	require.True(t, said.Cut)
	require.Equal(t, int64(50), said.Bytes)
	require.Equal(t, a.Exit().Stdout, said)
	require.Equal(t, string(before.Data)+cutNote, out)
	_, again := adopt(t, dir)
	require.Equal(t, out, read(t, dir, "stdout"), "it is said once")
	require.Equal(t, said, again.Stdout)
}

func TestReadOfWhatLostPower(t *testing.T) {
	t.Parallel()
	a, dir := start(t, sh("echo hello"))
	ended(t, a)
	require.NoError(t, a.Close())
	require.NoError(t, os.Truncate(filepath.Join(dir, "stdout"), 2))

	out, said := readAll(t, dir, Stdout, 10)

	require.Equal(t, "he", out)
	require.True(t, said.Cut)
}

func TestReadOfWhatNeverRan(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "attempt")
	_, err := Read(dir, Stdout, 0, 10, 0)
	require.ErrorIs(t, err, os.ErrNotExist)
	_, exit := adopt(t, dir)
	require.Equal(t, NeverStarted, exit.Outcome)

	p, err := Read(dir, Stdout, 0, 10, 0)

	require.NoError(t, err)
	require.Equal(t, Piece{Ended: true}, p)
}

// An agent of the same user can put anything in the place of its files. It
// neither leads the spoke elsewhere nor keeps it waiting.
func TestReadOfWhatIsNoFile(t *testing.T) {
	t.Parallel()
	tests := map[string]func(name string) error{
		"a pipe":           func(name string) error { return unix.Mkfifo(name, 0o600) },
		"a link":           func(name string) error { return os.Symlink("/etc/passwd", name) },
		"a directory":      func(name string) error { return os.Mkdir(name, 0o700) },
		"a link to itself": func(name string) error { return os.Symlink(filepath.Base(name), name) },
	}
	for what, put := range tests {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for _, name := range []string{string(Stderr), attempt.ExitFile, attempt.SpecFile} {
				require.NoError(t, put(filepath.Join(dir, name)))
			}

			_, err := Read(dir, Stderr, 0, 10, 0)

			require.ErrorIs(t, err, ErrUnreadable)
			p, err := Read(dir, Stdout, 0, 10, 0)
			require.NoError(t, err)
			require.Equal(t, Piece{}, p)
			_, exit := adopt(t, dir)
			require.Equal(t, Output{Cut: true}, exit.Stderr)
		})
	}
}

// An agent fills the disk that its shim keeps its output on: what does not fit is
// named, and the record says so at once.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	ownMounts(t, fillDisk)
}

func fillDisk(t *testing.T) {
	disk := t.TempDir()
	require.NoError(t, unix.Mount("tmpfs", disk, "tmpfs", 0, "size=1m"))
	t.Cleanup(func() { _ = unix.Unmount(disk, unix.MNT_DETACH) })
	dir, gate := filepath.Join(disk, "attempt"), filepath.Join(t.TempDir(), "gate")
	a, err := Start(t.Context(), dir, sh("printf %0100d 1; until [ -e "+gate+" ]; do sleep 0.01; done; cat /dev/zero >"+disk+"/fill; printf %05000d 2; exit 3"))
	require.NoError(t, err)
	endAfter(t, a)
	eventually(t, "the first words", func() bool { return len(read(t, dir, "stdout")) == 100 })

	require.NoError(t, os.WriteFile(gate, nil, 0o600))

	got := ended(t, a)
	require.Equal(t, 3, got.Code)
	require.Equal(t, int64(5100), got.Stdout.Bytes)
	require.Positive(t, got.Stdout.Dropped)
	require.Equal(t, int64(5100), got.Stdout.Gaps[0].To)
	require.NoError(t, a.Close())
	_, recorded := adopt(t, dir)
	require.Equal(t, got, *recorded)
	_, said := readAll(t, dir, Stdout, 10_000)
	require.Equal(t, got.Stdout, said)
}

func TestRemove(t *testing.T) {
	t.Parallel()
	t.Run("a running attempt", func(t *testing.T) {
		t.Parallel()
		a, dir := start(t, sh("sleep 600"))

		err := Remove(dir)

		require.ErrorIs(t, err, ErrRunning)
		require.True(t, alive(a.Pid()))
		require.FileExists(t, filepath.Join(dir, attempt.SpecFile))
	})
	t.Run("one whose shim was killed", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		_, err := saveSpec(dir, sh("exit 0"))
		require.NoError(t, err)
		require.ErrorIs(t, Remove(dir), ErrRunning)
		adopt(t, dir)

		err = Remove(dir)

		require.NoError(t, err)
		require.NoDirExists(t, dir)
	})
	t.Run("one with a directory in the place of its record", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		_, err := saveSpec(dir, sh("exit 0"))
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(filepath.Join(dir, attempt.ExitFile, "x"), 0o700))

		err = Remove(dir)

		require.NoError(t, err)
		require.NoDirExists(t, dir)
	})
	t.Run("one that another process adopts", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		adopt(t, dir)
		lock, err := attempt.TakeLock(dir)
		require.NoError(t, err)

		err = Remove(dir)

		require.ErrorIs(t, err, ErrRunning)
		require.NoError(t, attempt.Release(lock))
	})
	t.Run("one that was removed in part", func(t *testing.T) {
		t.Parallel()
		a, dir := start(t, sh("exit 0"))
		ended(t, a)
		require.NoError(t, a.Close())
		require.NoError(t, os.Remove(filepath.Join(dir, attempt.SpecFile)))
		require.NoError(t, os.Remove(filepath.Join(dir, attempt.ExitFile)))

		err := Remove(dir)

		require.NoError(t, err)
		require.NoDirExists(t, dir)
	})
}

// An agent leaves directories behind that may not be written to, as Go's module
// cache is. Only root is not held up by them.
func TestRemoveOfReadOnlyDirectories(t *testing.T) {
	t.Parallel()
	unprivileged(t, func(t *testing.T) {
		dir := t.TempDir()
		_, exit := adopt(t, dir)
		require.Equal(t, NeverStarted, exit.Outcome)
		deep := filepath.Join(dir, "a", "b", "c")
		require.NoError(t, os.MkdirAll(deep, 0o700))
		write(t, deep, "file", "x")
		require.NoError(t, os.Chmod(deep, 0))
		require.NoError(t, os.Chmod(filepath.Dir(deep), 0o500))
		require.Error(t, os.RemoveAll(dir), "the test is about nothing")

		err := Remove(dir)

		require.NoError(t, err)
		require.NoDirExists(t, dir)
		require.NoError(t, Remove(dir), "and again")
	})
}
