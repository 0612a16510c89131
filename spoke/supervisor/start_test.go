package supervisor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/tree"
)

func TestStartRefusals(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, content string, mode os.FileMode) string {
		name = filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(name, []byte(content), 0o600))
		require.NoError(t, os.Chmod(name, mode))
		return name
	}
	a, b := filepath.Join(dir, "loop-a"), filepath.Join(dir, "loop-b")
	file("loop-a", "#!"+b+"\n", 0o755)
	file("loop-b", "#!"+a+"\n", 0o755)
	require.NoError(t, os.Symlink("circle", filepath.Join(dir, "circle")))
	tests := map[string]struct {
		change func(*Spec)
		reason Reason
		text   string
	}{
		"a missing program":             {func(s *Spec) { s.Argv[0] = filepath.Join(dir, "none") }, NotFound, "none: no such file or directory; install it"},
		"a missing interpreter":         {func(s *Spec) { s.Argv[0] = file("orphan", "#!/no/such/interpreter\n", 0o755) }, BadShebang, "no such file or directory: the interpreter"},
		"a program without permission":  {func(s *Spec) { s.Argv[0] = file("plain", "#!/bin/sh\n", 0o644) }, NotExecutable, "permission denied; make it executable"},
		"a directory as program":        {func(s *Spec) { s.Argv[0] = dir }, IsDirectory, "permission denied: it is a directory"},
		"a path through a file":         {func(s *Spec) { s.Argv[0] = file("flat", "", 0o644) + "/x" }, HostFault, "not a directory"},
		"scripts that run each other":   {func(s *Spec) { s.Argv[0] = a }, ShebangLoop, "too many levels of symbolic links"},
		"a link to itself":              {func(s *Spec) { s.Argv[0] = filepath.Join(dir, "circle") }, ShebangLoop, "too many levels of symbolic links"},
		"a script without first line":   {func(s *Spec) { s.Argv[0] = file("bare", "echo hi\n", 0o755) }, BadFormat, "exec format error; a script needs"},
		"a program of another machine":  {func(s *Spec) { s.Argv[0] = file("alien", "\x7fELF\x02\x01\x01", 0o755) }, BadFormat, "exec format error"},
		"3 MiB of arguments":            {func(s *Spec) { s.Argv = append(s.Argv, strings.Repeat("x", 3<<20)) }, TooLong, "argument list too long; pass large inputs in a file"},
		"a missing working directory":   {func(s *Spec) { s.Dir = "/no/such/place" }, BadDirectory, "/no/such/place: the working directory cannot be entered: no such file"},
		"a file as working directory":   {func(s *Spec) { s.Dir = file("workdir", "", 0o644) }, BadDirectory, "not a directory"},
		"a lease that is over":          {func(s *Spec) { s.Deadline = Boottime() - 1 }, LeaseOver, "the lease ran out before the start"},
		"no program":                    {func(s *Spec) { s.Argv = nil }, BadSpec, "no program"},
		"a relative program":            {func(s *Spec) { s.Argv[0] = "sh" }, BadSpec, `"sh" is not an absolute path`},
		"a relative working directory":  {func(s *Spec) { s.Dir = "tmp" }, BadSpec, `"tmp" is not an absolute path`},
		"an argument with NUL":          {func(s *Spec) { s.Argv[1] = "a\x00b" }, BadSpec, "argument 1 holds a NUL"},
		"an argument that is not UTF-8": {func(s *Spec) { s.Argv[1] = "\xff" }, BadSpec, "argument 1 holds a NUL or is not UTF-8"},
		"a variable without value":      {func(s *Spec) { s.Env = []string{"A=b", "secret"} }, BadSpec, "environment entry 1"},
		"a negative timeout":            {func(s *Spec) { s.Timeout = -1 }, BadSpec, "negative"},
		"what is not opened":            {func(s *Spec) { s.Confine.Write = []string{OpenedDir} }, BadSpec, "not opened"},
		"a marker that is a path":       {func(s *Spec) { s.Marker = "../../../../../../../../../../etc" }, BadSpec, "marker"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			spec := Spec{Argv: []string{"/bin/true", "x"}, Dir: "/"}
			tt.change(&spec)
			attempt := filepath.Join(t.TempDir(), "attempt")

			_, err := Start(t.Context(), attempt, spec)

			refused, ok := errors.AsType[*StartError](err)
			require.True(t, ok, "%v", err)
			require.Equal(t, tt.reason, refused.Reason, err)
			require.ErrorContains(t, err, tt.text)
			require.NotContains(t, err.Error(), "secret")
			if tt.reason != BadSpec { // there was a shim, and it left a record
				_, exit := adopt(t, attempt)
				require.Equal(t, StartFailed, exit.Outcome)
				require.Equal(t, refused.Error(), exit.Reason)
				require.Equal(t, tt.reason, exit.Failed)
			}
		})
	}
}

func TestStartOfAUsedDirectory(t *testing.T) {
	t.Parallel()
	a, dir := start(t, sh("exit 0"))
	ended(t, a)

	_, err := Start(t.Context(), dir, sh("exit 0"))

	require.ErrorIs(t, err, os.ErrExist)
}

func TestStartInADeepDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for len(dir) < 400 { // the path of a socket ends at 107
		dir = filepath.Join(dir, strings.Repeat("d", 50))
	}
	require.NoError(t, os.MkdirAll(dir, 0o700))
	a, err := Start(t.Context(), filepath.Join(dir, "attempt"), sh("sleep 600"))
	require.NoError(t, err)
	require.NoError(t, a.Close())

	adopted, _ := adopt(t, filepath.Join(dir, "attempt"))

	require.Equal(t, a.Pid(), adopted.Pid())
}

func TestStartGivenUp(t *testing.T) {
	t.Parallel()
	// Many moments of giving up: before, during and after the start.
	for wait := time.Duration(0); wait < 40*time.Millisecond; wait += 2 * time.Millisecond {
		dir := filepath.Join(t.TempDir(), "attempt")
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		spec := sh("sleep 600")
		spec.Marker = newMarker()

		a, err := Start(ctx, dir, spec)
		cancel()

		if err == nil {
			require.NoError(t, a.Kill(t.Context(), "it was in time", 0))
			require.NoError(t, a.Close())
			continue
		}
		require.ErrorIs(t, err, context.DeadlineExceeded)
		left, err := tree.New(spec.Marker, 0, nil).Find(true)
		require.NoError(t, err)
		require.Empty(t, left)
		_, exit := adopt(t, dir)
		require.Contains(t, []Outcome{Lost, NeverStarted}, exit.Outcome)
	}
}

// The shim waits for its attempt when it is stopped, so that it is when it gets it.
func TestStartWithAShimThatHangs(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	dir := filepath.Join(t.TempDir(), "attempt")
	spec := sh("exit 0")
	spec.Marker = markerOf(dir)
	saved, err := saveSpec(dir, spec)
	require.NoError(t, err)
	w, shim, err := forkShim(dir, spec)
	require.NoError(t, err)
	require.NoError(t, shim.Signal(syscall.SIGSTOP))
	begin := time.Now()

	_, err = prove(ctx, dir, saved, w, shim)

	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Less(t, time.Since(begin), 5*time.Second)
	_, exit := adopt(t, dir)
	require.Equal(t, Lost, exit.Outcome, "nobody can tell what a shim did that had to be killed")
}
