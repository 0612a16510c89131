package spoke

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Only a note with the id of another connection keeps a directory from who asks for its task: one without a note is of a spoke of before the
// note, and an agent that spoils its own keeps no spoke from adopting it.
func TestWhoseADirectoryIs(t *testing.T) {
	t.Parallel()
	own, other := uuid.NewString(), uuid.NewString()
	for name, tt := range map[string]struct {
		make func(note string) error
		last int
	}{
		"own":             {func(note string) error { return os.WriteFile(note, []byte(own), 0o600) }, 2},
		"another's":       {func(note string) error { return os.WriteFile(note, []byte(other), 0o600) }, 0},
		"without a note":  {func(string) error { return nil }, 2},
		"an empty note":   {func(note string) error { return os.WriteFile(note, nil, 0o600) }, 2},
		"no id":           {func(note string) error { return os.WriteFile(note, []byte("nobody"), 0o600) }, 2},
		"too long":        {func(note string) error { return os.WriteFile(note, []byte(strings.Repeat(other, 2)), 0o600) }, 2},
		"a directory":     {func(note string) error { return os.Mkdir(note, 0o700) }, 2},
		"a link to an id": {func(note string) error { return os.Symlink(note+".of", note) }, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, task := t.TempDir(), uuid.NewString()
			at := filepath.Join(agentDir(dir, task), "2", controlDir)
			require.NoError(t, os.MkdirAll(at, 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(at, ownerNote+".of"), []byte(other), 0o600))
			require.NoError(t, tt.make(filepath.Join(at, ownerNote)))

			last, err := lastAttempt(dir, own, task)
			require.NoError(t, err)
			require.Equal(t, tt.last, last)
		})
	}
}

// An attempt that cannot be looked for, by a fault of this host, is not taken for none. Other tests need files: none of them runs beside this one.
func TestAnAttemptThatCannotBeLookedForIsNotNone(t *testing.T) {
	dir, own, task := t.TempDir(), uuid.NewString(), uuid.NewString()
	require.NoError(t, os.MkdirAll(filepath.Join(agentDir(dir, task), "2", controlDir), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(agentDir(dir, task), "2", controlDir, ownerNote), []byte(own), 0o600))
	next, err := os.Open(dir)
	require.NoError(t, err)
	free := next.Fd()
	require.NoError(t, next.Close())
	var was unix.Rlimit
	require.NoError(t, unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, &was))
	for files, want := range []error{unix.EMFILE, nil} {
		require.NoError(t, unix.Prlimit(0, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(free) + uint64(files), Max: was.Max}, nil))

		last, err := lastAttempt(dir, own, task)

		require.NoError(t, unix.Prlimit(0, unix.RLIMIT_NOFILE, &was, nil))
		require.ErrorIs(t, err, want)
		require.Equal(t, map[bool]int{true: 2}[err == nil], last)
	}
}
