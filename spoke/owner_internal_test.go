package spoke

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// Only a note with the id of another connection keeps a directory from who asks for its task: one without a note is of a spoke of before the
// note, and what only an agent at isolation none can put in its place keeps no spoke from adopting it. A note that is closed is read
// all the same, as any agent with the user of the spoke can close it; one that cannot be read is another's.
func TestWhoseADirectoryIs(t *testing.T) {
	t.Parallel()
	unprivileged(t, testWhoseADirectoryIs)
}

func testWhoseADirectoryIs(t *testing.T) {
	own, other := uuid.NewString(), uuid.NewString()
	const cannot = "a note that this user cannot open"
	note := func(owner string, closes ...string) func(note string) error {
		return func(note string) error {
			err := os.WriteFile(note, []byte(owner), 0o600)
			for _, up := range closes {
				err = errors.Join(err, os.Chmod(filepath.Join(note, up), 0))
			}
			return err
		}
	}
	tests := map[string]struct {
		make func(note string) error
		last int
	}{
		"own":             {note(own), 2},
		"another's":       {note(other), 0},
		"without a note":  {func(string) error { return nil }, 2},
		"an empty note":   {note(""), 2},
		"no id":           {note("nobody"), 2},
		"too long":        {note(strings.Repeat(other, 2)), 2},
		"a directory":     {func(note string) error { return os.Mkdir(note, 0o700) }, 2},
		"a link to an id": {func(note string) error { return os.Symlink(note+".of", note) }, 2},

		"own, closed":             {note(own, ""), 2},
		"another's, closed":       {note(other, ""), 0},
		"in closed control files": {note(other, ".."), 0},
		"in a closed attempt":     {note(other, "../.."), 0},
		"in a closed task":        {note(other, "../../.."), 0},
		"own, all closed":         {note(own, "", "..", "../..", "../../.."), 2},
		"another's, all closed":   {note(other, "", "..", "../..", "../../.."), 0},
		cannot:                    {func(note string) error { return os.Rename(filepath.Join(os.Getenv("HOME"), rootsFile), note) }, 0},
	}
	if _, err := os.Stat(filepath.Join(os.Getenv("HOME"), rootsFile)); err != nil {
		delete(tests, cannot)
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
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

		last, err := Backlog(nil, dir).Found(own, task)

		require.NoError(t, unix.Prlimit(0, unix.RLIMIT_NOFILE, &was, nil))
		require.ErrorIs(t, err, want)
		require.NotErrorIs(t, err, backlog.ErrUntold, "so it is of all tasks")
		require.Equal(t, map[bool]int{true: 2}[err == nil], last)
	}
}

// rootsFile is a file in HOME that root has made, where the tests are root's.
const rootsFile = "roots"

// unprivileged runs body as a user that is not root: here, unless the tests are root's, and then in a process of its own.
func unprivileged(t *testing.T, body func(t *testing.T)) {
	t.Helper()
	const nobody = 65534
	if os.Geteuid() != 0 {
		body(t)
		return
	}
	home, err := os.MkdirTemp("", "nobody")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	require.NoError(t, os.WriteFile(filepath.Join(home, rootsFile), nil, 0o600))
	require.NoError(t, os.Chown(home, nobody, nobody))
	c := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=2m")
	c.Dir, c.Env = home, []string{"TMPDIR=" + home, "HOME=" + home, "PATH=/usr/bin:/bin"}
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	require.NoError(t, c.Run(), "%s", &out)
	require.Contains(t, out.String(), "--- PASS: "+t.Name())
}
