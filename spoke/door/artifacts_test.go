package door

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/spoke/place"
)

// workAt is the directory at a path as the working directory of an agent that is about to begin.
func workAt(t *testing.T, path string) *WorkDir {
	t.Helper()
	at, err := place.OpenDir(path)
	require.NoError(t, err)
	defer at.Close()
	return OpenWorkDir(path, at)
}

// describing is a door that describes files, and its working directory, which has some of the sizes in it.
func describing(t *testing.T, files map[string]int64) (d *Door, dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, size := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
		require.NoError(t, os.Truncate(filepath.Join(dir, name), size))
	}
	d = &Door{heavy: make(chan struct{}, 1), room: Room{Work: workAt(t, dir), Hide: func(text string) string { return text }}}
	t.Cleanup(d.room.Work.Close)
	return d, dir
}

func (d *Door) describeOne(t *testing.T, name string) (sum string, err error) {
	t.Helper()
	list, err := d.describe(t.Context(), []Named{{Name: name, Path: name}})
	if err != nil {
		return "", err
	}
	return list[0].SHA256, nil
}

// The spoke may read more than its agent: a file that is not the agent's own is no artifact.
func TestArtifactsAreFilesOfTheAgent(t *testing.T) {
	t.Parallel()
	d, _ := describing(t, map[string]int64{"file": 6})
	d.user = os.Geteuid() + 1
	_, err := d.describeOne(t, "file")
	require.Equal(t, commands.Validation, commands.CodeOf(err))
	require.ErrorContains(t, err, "belongs to another user")

	d.user = 0
	sum, err := d.describeOne(t, "file")

	require.NoError(t, err)
	require.Len(t, sum, 64)
}

// What all artifacts of one word have together is bounded, and not each alone. What is refused is not read, and not counted.
func TestArtifactsAreBoundedTogether(t *testing.T) {
	t.Parallel()
	d, _ := describing(t, map[string]int64{"log": 6, "image": maxArtifact})

	_, err := d.describe(t.Context(), []Named{{Name: "log", Path: "log"}, {Name: "image", Path: "image"}})

	require.Equal(t, commands.PayloadTooLarge, commands.CodeOf(err))
	require.EqualValues(t, 6, d.digests.read)
}

// An agent whose artifacts are too many is told so at once, as often as it asks, and one that fits is described.
func TestArtifactsOfAnAttemptAreBounded(t *testing.T) {
	t.Parallel()
	dir, work := filepath.Join(t.TempDir(), "door"), t.TempDir()
	for name, size := range map[string]int64{"small": 6, "large": 7} {
		require.NoError(t, os.WriteFile(filepath.Join(work, name), make([]byte, size), 0o600))
	}
	d, err := Open(dir, 0, Room{Work: workAt(t, work), Heard: func() {}, Hide: func(text string) string { return text }})
	require.NoError(t, err)
	t.Cleanup(d.Close)
	d.digests.read = maxDescribed - 6
	c := &Client{Socket: filepath.Join(dir, Socket), TokenFile: filepath.Join(dir, Token)}
	for range 3 {
		err := c.Do(t.Context(), "POST", "/v1/done", Done{Artifacts: []Named{{Name: "large", Path: "large"}}}, nil)

		require.Equal(t, commands.PayloadTooLarge, commands.CodeOf(err))
		require.False(t, again(err), "a client does not ask again")
		require.EqualValues(t, maxDescribed-6, d.digests.read)
	}

	_, err = d.describeOne(t, "small")

	require.NoError(t, err)
	require.EqualValues(t, maxDescribed, d.digests.read)
}

// What was not read is not counted.
func TestArtifactsThatAreNotReadAreNotCounted(t *testing.T) {
	t.Parallel()
	d, dir := describing(t, map[string]int64{"file": 6})
	over, end := context.WithCancel(t.Context())
	end()
	work, _, err := d.room.Work.open()
	require.NoError(t, err)

	_, _, err = d.digest(over, work.root, "file", maxArtifact)

	require.ErrorIs(t, err, context.Canceled)
	require.EqualValues(t, 0, d.digests.read)
	f, err := os.Open(filepath.Join(dir, "file"))
	require.NoError(t, err)
	defer f.Close()
	_, err = d.sumOf(t.Context(), f, "file", version{size: 10})
	require.Equal(t, commands.Conflict, commands.CodeOf(err))
	require.EqualValues(t, 6, d.digests.read, "what was read is")
}

// A file that does not change is read and counted once, and again when it has changed, also where its agent has set back its time.
func TestAnArtifactCountsOnce(t *testing.T) {
	t.Parallel()
	d, dir := describing(t, nil)
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, []byte("secret"), 0o600))
	written, err := os.Stat(file)
	require.NoError(t, err)
	var sum string
	require.Eventually(t, func() bool { // once its change is long enough ago to tell it from another one
		before := d.digests.read
		sum, err = d.describeOne(t, "file")
		return err == nil && d.digests.read == before
	}, time.Minute, 10*time.Millisecond)
	require.Equal(t, "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b", sum)
	d.digests.read = maxDescribed
	again, err := d.describeOne(t, "file")
	require.NoError(t, err, "it counts once")
	require.Equal(t, sum, again)

	d.digests.read = 0
	require.NoError(t, os.WriteFile(file, []byte("public"), 0o600))
	require.NoError(t, os.Chtimes(file, written.ModTime(), written.ModTime()))
	again, err = d.describeOne(t, "file")

	require.NoError(t, err)
	require.NotEqual(t, sum, again)
	require.EqualValues(t, 6, d.digests.read)
}

// Digests are remembered of so many files, and none whose next change may have the time of the last one.
func TestDigestsAreRememberedInBounds(t *testing.T) {
	t.Parallel()
	var d digests
	for n := range uint64(3 * maxKnown) {
		d.remember(version{ino: n}, "sum")
		require.LessOrEqual(t, len(d.known), maxKnown)
	}
	_, known := d.of(version{ino: 3*maxKnown - 1})
	require.True(t, known)

	fine, whole := version{ctime: syscall.Timespec{Sec: 1000, Nsec: 1}}, version{ctime: syscall.Timespec{Sec: 1000}}
	for _, x := range []struct {
		v    version
		from time.Time
		is   bool
	}{
		{fine, time.Unix(1000, 50_000_000), false}, {fine, time.Unix(1000, 110_000_000), true}, {fine, time.Unix(999, 0), false},
		{whole, time.Unix(1001, 900_000_000), false}, {whole, time.Unix(1002, 1), true},
	} {
		require.Equal(t, x.is, x.v.settled(x.from), "%v at %v", x.v, x.from)
	}
}

// No more is read of a file than was counted: one that grows or shrinks meanwhile is no artifact.
func TestAnArtifactThatGrowsIsRefused(t *testing.T) {
	t.Parallel()
	grown := bytes.NewReader(make([]byte, 1<<20))
	read, _, err := digestOf(t.Context(), grown, "file", 10)
	require.Equal(t, commands.Conflict, commands.CodeOf(err))
	require.ErrorContains(t, err, "was replaced meanwhile")
	require.EqualValues(t, 11, read)
	left, err := io.Copy(io.Discard, grown)
	require.NoError(t, err)
	require.EqualValues(t, 1<<20-11, left, "the rest is not read")

	_, _, err = digestOf(t.Context(), bytes.NewReader(nil), "file", 10)
	require.Equal(t, commands.Conflict, commands.CodeOf(err))
	_, sum, err := digestOf(t.Context(), bytes.NewReader([]byte("secret")), "file", 6)
	require.NoError(t, err)
	require.Equal(t, "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b", sum)
}

// Whatever is in the place of a working directory is another one, and holds nobody up.
func TestAnotherWorkingDirectoryIsRefused(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "work")
	require.NoError(t, os.Mkdir(dir, 0o700))
	began := workAt(t, dir)
	t.Cleanup(began.Close)
	_, leave, err := KnownWorkDir(dir, began.ID()).open()
	require.NoError(t, err, "it is the one")
	leave()
	_, _, err = KnownWorkDir(dir, "").open()
	require.Equal(t, commands.Conflict, commands.CodeOf(err), "nobody knows which it was")
	require.NoError(t, os.Rename(dir, dir+"-before"))
	for name, x := range map[string]struct {
		put  func(path string) error
		code commands.Code
	}{
		"nothing":           {func(string) error { return nil }, commands.NotFound},
		"another directory": {func(path string) error { return os.Mkdir(path, 0o700) }, commands.Conflict},
		"a link":            {func(path string) error { return os.Symlink("/etc", path) }, commands.Conflict},
		"a pipe":            {func(path string) error { return unix.Mkfifo(path, 0o600) }, commands.NotFound},
	} {
		path := filepath.Join(t.TempDir(), "work")
		require.NoError(t, x.put(path), name)
		_, _, err := KnownWorkDir(path, began.ID()).open()
		require.Equal(t, x.code, commands.CodeOf(err), name)
	}
	_, leave, err = began.open()
	require.NoError(t, err, "the one that is open is the one, wherever it is")
	leave()
}
