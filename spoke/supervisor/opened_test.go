package supervisor

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// opened opens a path as a spoke does for an agent.
func opened(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, unix.O_PATH, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// An agent works in the directory that was opened for it, and executes the program that was, and may use these and
// nothing else that is at their paths by then.
func TestAnAgentHasWhatWasOpened(t *testing.T) {
	t.Parallel()
	top, outside := openDir(t, User{}), openDir(t, User{})
	work, tools := filepath.Join(top, "work"), filepath.Join(top, "tools")
	for _, dir := range []string{work, tools} {
		require.NoError(t, os.Mkdir(dir, 0o700))
	}
	secret := filepath.Join(outside, "tool")
	require.NoError(t, os.WriteFile(secret, []byte("canary"), 0o700))
	tool := filepath.Join(tools, "tool")
	require.NoError(t, os.WriteFile(tool, []byte("#!/bin/sh\necho ran\n"), 0o755))
	spec := sh(`echo x >kept; echo x >"$1"/work; cat "$1"/tool; "$2"; true`)
	spec.Argv = append(spec.Argv, "sh", outside, tool)
	spec.Dir, spec.Opened, spec.OpenedProgram = work, opened(t, work), opened(t, tool)
	spec.Confine = Confine{Landlock: true, Read: []string{"/usr", "/bin", "/lib", "/lib64", "/etc", "/dev/null", OpenedProgram}, Write: []string{OpenedDir}}
	for i, dir := range spec.Confine.Read { // those of the system may be links
		if real, err := filepath.EvalSymlinks(dir); err == nil && dir != OpenedProgram {
			spec.Confine.Read[i] = real
		}
	}
	require.NoError(t, os.Rename(work, work+"2"))
	require.NoError(t, os.Symlink(outside, work))
	a, dir := start(t, spec)

	out, x := output(t, a, dir)

	require.Equal(t, 0, x.Code)
	require.Equal(t, "ran\n", out)
	require.FileExists(t, filepath.Join(work+"2", "kept"))
	require.NoFileExists(t, filepath.Join(outside, "kept"))
	require.NoFileExists(t, filepath.Join(outside, "work"))
}

// A directory that was removed after it was opened is none to work in.
func TestADirectoryThatWasRemovedIsNotWorkedIn(t *testing.T) {
	t.Parallel()
	spec := sh("true")
	spec.Dir = filepath.Join(openDir(t, User{}), "work")
	require.NoError(t, os.Mkdir(spec.Dir, 0o700))
	spec.Opened = opened(t, spec.Dir)
	require.NoError(t, os.Remove(spec.Dir))

	_, err := Start(t.Context(), filepath.Join(t.TempDir(), "attempt"), spec)

	var failed *StartError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, BadDirectory, failed.Reason)
	require.ErrorContains(t, err, "no such file or directory")
}

// What a wrapper is handed stands for the number of a descriptor of its own, and nothing else of it is inherited.
func TestAWrapperIsHandedWhatWasOpened(t *testing.T) {
	t.Parallel()
	work := openDir(t, User{})
	spec := sh("true")
	spec.Dir, spec.Opened, spec.OpenedProgram = work, opened(t, work), opened(t, "/bin/true")
	spec.Confine.Wrap = []string{"/bin/sh", "-c", `for fd in "$1" "$2"; do [ /proc/self/fd/$fd -ef "$0" ] && echo one; done; for fd in /proc/self/fd/*; do [ "$fd" -ef "$0" ] && echo all; done`, work, OpenedDir, OpenedDir}
	a, dir := start(t, spec)

	out, _ := output(t, a, dir)

	require.Equal(t, "one\none\nall\nall\n", out)
}
