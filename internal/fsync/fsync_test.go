package fsync_test

import (
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

func read(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(raw)
}
