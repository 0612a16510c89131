package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/signing"
)

// An instance is as safe as the directories that lead to it. Each command that would
// use what others could have put there names the directory and what mends it.
func TestNothingIsUsedThatOthersCouldHavePutThere(t *testing.T) {
	t.Parallel()
	base := filepath.Join(t.TempDir(), "shared")
	dir := filepath.Join(base, "data")
	require.NoError(t, os.MkdirAll(dir, 0o700))
	_, err := signing.CreateKeys(filepath.Join(dir, "keys"))
	require.NoError(t, err)
	require.Zero(t, typed(t, "--data-dir", dir, "spoke", "policy", "init").code)
	require.NoError(t, os.Symlink(base, base+".link"))
	require.NoError(t, os.Chmod(base, 0o707))
	told := base + " can be written by everybody; run: chmod o-w " + base

	for _, place := range []string{dir, filepath.Join(base+".link", "data"), filepath.Join(base, "new")} {
		for _, line := range [][]string{{"hub", "run"}, {"spoke", "run"}, {"spoke", "join", "--token-file", "/dev/null"}, {"spoke", "policy", "show"}, {"spoke", "policy", "test", "--", "x"},
			{"backlog", "create", "--id", "A", "--title", "a"}, {"doctor"}} {
			got := typed(t, append([]string{"--data-dir", place}, line...)...)

			if line[0] == "doctor" {
				require.Regexp(t, `(?m)^data directory +WRONG: `+told, got.out)
				continue
			}
			if place == filepath.Join(base, "new") && line[1] == "policy" {
				continue // nothing may run without one
			}
			require.Equal(t, exitMisuse, got.code, "%s %v: %s", place, line, got.err)
			if line[1] != "join" { // which looks at the token first
				require.Contains(t, got.err, told, "%v", line)
			}
		}
	}

	require.NoDirExists(t, filepath.Join(base, "new"))
	require.NoError(t, os.Chmod(base, 0o755))
	require.Zero(t, typed(t, "--data-dir", dir, "spoke", "policy", "show").code)
}
