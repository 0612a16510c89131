package spoke

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whatever is in the place of a file, or of a directory on the way to it, stays as it is, and so does what it
// leads to.
func TestFilesArePutOverNothing(t *testing.T) {
	t.Parallel()
	list := []placed{{"a/b", "new", 0o600}}
	for name, plant := range map[string]func(work, elsewhere string) error{
		"a file":                    func(work, _ string) error { return os.WriteFile(filepath.Join(work, "a"), []byte("old"), 0o600) },
		"a link to a directory":     func(work, elsewhere string) error { return os.Symlink(elsewhere, filepath.Join(work, "a")) },
		"one to a directory beside": func(work, _ string) error { return os.Symlink("beside", filepath.Join(work, "a")) },
		"one that leads to nothing": func(work, elsewhere string) error {
			return os.Symlink(filepath.Join(elsewhere, "none"), filepath.Join(work, "a"))
		},
		"the directory is a link": func(work, elsewhere string) error {
			_ = os.RemoveAll(work)
			return os.Symlink(filepath.Join(elsewhere, "none"), work)
		},
	} {
		work, elsewhere := t.TempDir(), t.TempDir()
		require.NoError(t, os.Mkdir(filepath.Join(work, "beside"), 0o700))
		require.NoError(t, plant(work, elsewhere), name)

		err := write(work, list)

		require.Error(t, err, name)
		require.NotContains(t, err.Error(), "new")
		for _, dir := range []string{elsewhere, filepath.Join(work, "beside")} {
			left, _ := os.ReadDir(dir)
			require.Empty(t, left, name)
		}
	}
	work := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(work, "b"), []byte("old"), 0o600))
	require.NoError(t, os.Symlink("b", filepath.Join(work, "c")))
	for _, name := range []string{"b", "c"} {
		require.ErrorIs(t, write(work, []placed{{name, "new", 0o600}}), fs.ErrExist)
	}
	raw, err := os.ReadFile(filepath.Join(work, "b"))
	require.NoError(t, err)
	require.Equal(t, "old", string(raw))
}

// Modes are what was asked for whatever the umask is, and every directory is there once.
func TestFilesArePutWhereTheyBelong(t *testing.T) {
	t.Parallel()
	work := t.TempDir()
	list := []placed{{"x/y/z", "1", 0o600}, {"x/run", "2", 0o700}, {"top", "", 0o600}}

	require.NoError(t, os.Mkdir(filepath.Join(work, "x"), 0o700), "an input has it, too")
	require.NoError(t, write(work, list))

	require.Equal(t, []string{"x", "x/y"}, dirsOf(list))
	for path, mode := range map[string]fs.FileMode{"x": 0o700 | fs.ModeDir, "x/y": 0o700 | fs.ModeDir, "x/y/z": 0o600, "x/run": 0o700, "top": 0o600} {
		info, err := os.Stat(filepath.Join(work, path))
		require.NoError(t, err)
		require.Equal(t, mode, info.Mode(), path)
	}
}
