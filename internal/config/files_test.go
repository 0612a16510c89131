package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/internal/config"
)

// Whatever lies where the file should, a start says so at once and with its name: nothing waits for who writes a pipe, and
// nothing is read beyond what a configuration can be.
func TestWhatLiesInThePlaceOfTheFile(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		put  func(path string) error
		says string
	}{
		"a pipe":      {func(path string) error { return syscall.Mkfifo(path, 0o600) }, "not a regular file"},
		"a directory": {func(path string) error { return os.Mkdir(path, 0o700) }, "not a regular file"},
		"100 MiB": {func(path string) error {
			return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 100<<20))
		}, "larger than 1048576 bytes"},
		"a tab at a beginning": {func(path string) error { return os.WriteFile(path, []byte("name: a\n\tslots: 4\n"), 0o600) }, ":2: "},
		"no UTF-8":             {func(path string) error { return os.WriteFile(path, []byte("slots: 4\nname: \xff\xfe\n"), 0o600) }, ":2: it is not UTF-8"},
	} {
		path := filepath.Join(t.TempDir(), "config.yaml")
		require.NoError(t, tt.put(path))
		f := pflag.NewFlagSet("run", pflag.ContinueOnError)
		f.Int("slots", 4, "")
		f.String("name", "host", "")
		begun := time.Now()

		_, err := config.Load(f, func(string) string { return "" }, path, "hub run")

		require.Less(t, time.Since(begun), 10*time.Second, name)
		require.ErrorContains(t, err, path, name)
		require.ErrorContains(t, err, tt.says, name)
	}
}
