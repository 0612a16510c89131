package fsync_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/internal/fsync"
)

func TestReplace(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(t *testing.T, path string){
		"a file that is not there": func(*testing.T, string) {},
		"one that others may read": func(t *testing.T, path string) {
			require.NoError(t, os.WriteFile(path, []byte("a longer text"), 0o644))
		},
		"one beside half a draft, which others may read": func(t *testing.T, path string) {
			require.NoError(t, os.WriteFile(path+".new", []byte("a draft that is longer"), 0o644))
		},
		"one beside a draft that is a link": func(t *testing.T, path string) {
			require.NoError(t, os.WriteFile(path+".other", []byte("other"), 0o644))
			require.NoError(t, os.Symlink(path+".other", path+".new"))
			t.Cleanup(func() { require.Equal(t, "other", read(t, path+".other"), "what it led to is as it was") })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "file")
			prepare(t, path)

			err := fsync.Replace(path, []byte("new"), 0o600)

			require.NoError(t, err)
			require.Equal(t, "new", read(t, path))
			info, err := os.Lstat(path)
			require.NoError(t, err)
			require.Equal(t, os.FileMode(0o600), info.Mode())
			require.NoFileExists(t, path+".new")
		})
	}
}

func TestWhatCannotBeReplacedStays(t *testing.T) {
	t.Parallel()
	for name, block := range map[string]func(path string) string{
		"the draft has no place":          func(path string) string { return path + ".new/full" },
		"the file's place is a directory": func(path string) string { return path + "/full" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "file")
			there := block(path)
			require.NoError(t, os.MkdirAll(there, 0o700))

			err := fsync.Replace(path, []byte("new"), 0o600)

			require.ErrorContains(t, err, "replacing "+path)
			require.DirExists(t, there)
			require.NoFileExists(t, path+".new")
		})
	}
}

// A file that is made has its name when it is whole; where that fails, or its name is taken, nothing is left beside what was there.
func TestCreate(t *testing.T) {
	t.Parallel()
	write := func(w io.Writer) error { _, err := io.WriteString(w, "whole"); return err }
	full := errors.New("the disk is full")
	for name, c := range map[string]struct {
		there string
		fill  func(path string) func(io.Writer) error
		text  string
		want  error
	}{
		"a new file":        {"", func(string) func(io.Writer) error { return write }, "whole", nil},
		"one that is there": {"theirs", func(string) func(io.Writer) error { return write }, "theirs", fs.ErrExist},
		"half of it written": {"", func(string) func(io.Writer) error {
			return func(w io.Writer) error { return errors.Join(write(w), full) }
		}, "", full},
		"made by another meanwhile": {"", func(path string) func(io.Writer) error {
			return func(w io.Writer) error { return errors.Join(write(w), os.WriteFile(path, []byte("theirs"), 0o600)) }
		}, "theirs", fs.ErrExist},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "file")
			if c.there != "" {
				require.NoError(t, os.WriteFile(path, []byte(c.there), 0o600))
			}

			err := fsync.Create(path, c.fill(path))

			require.ErrorIs(t, err, c.want)
			entries, err := os.ReadDir(filepath.Dir(path))
			require.NoError(t, err)
			if c.text == "" {
				require.Empty(t, entries)
				return
			}
			require.Len(t, entries, 1)
			require.Equal(t, c.text, read(t, path))
		})
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(raw)
}
