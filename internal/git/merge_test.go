package git_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/internal/git"
)

// A branch is moved on, or gets a commit of both; what conflicts changes nothing, and no program that the repository names is run.
func TestMerge(t *testing.T) {
	t.Parallel()
	g, err := git.Find(t.Context())
	require.NoError(t, err)
	dir := t.TempDir()
	run := func(args ...string) string {
		cmd := exec.CommandContext(t.Context(), "git", append([]string{"-C", dir, "-c", "user.name=ann", "-c", "user.email=ann@example.org"}, args...)...)
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null") // else the hooks of the tests' home are run
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "git %v: %s", args, out)
		return strings.TrimSpace(string(out))
	}
	commit := func(branch, file, text string) string {
		run("checkout", "-q", branch)
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
		run("add", "-A")
		run("commit", "-qm", file)
		tip := run("rev-parse", "HEAD")
		run("checkout", "-q", "--detach")
		return tip
	}
	run("init", "-q", "-b", "main")
	run("config", "user.name", "ann")
	run("config", "user.email", "ann@example.org")
	ran := filepath.Join(t.TempDir(), "ran")
	require.NoError(t, os.WriteFile(filepath.Join(dir, ".gitattributes"), []byte("* merge=own filter=own\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a"), []byte("1\n"), 0o600))
	run("add", "-A")
	run("commit", "-qm", "first")
	base := run("rev-parse", "HEAD")
	run("branch", "work")
	run("branch", "other")
	run("branch", "side")
	run("checkout", "-q", "--detach")
	tip := commit("work", "b", "2\n")
	run("config", "merge.own.driver", "touch "+ran+"; false")
	run("config", "filter.own.clean", "touch "+ran+"; cat")
	require.NoError(t, os.WriteFile(filepath.Join(dir, ".git/hooks/reference-transaction"), []byte("#!/bin/sh\ntouch "+ran+"\n"), 0o700)) //nolint:gosec // a hook is executed

	m, err := g.Merge(t.Context(), dir, tip, "main", "merge it")
	require.NoError(t, err)
	require.Equal(t, git.Merge{Branch: "refs/heads/main", Was: base, Is: tip, Forward: true}, m)
	m, err = g.Merge(t.Context(), dir, tip, "main", "merge it")
	require.NoError(t, err)
	require.Equal(t, tip, m.Is, "it is there already")
	require.NoFileExists(t, ran)

	run("config", "--unset", "filter.own.clean")
	require.NoError(t, os.Remove(filepath.Join(dir, ".git/hooks/reference-transaction")))
	mine := commit("other", "a", "mine\n")
	m, err = g.Merge(t.Context(), dir, tip, "other", "merge it")
	require.NoError(t, err)
	require.Equal(t, []any{mine, false}, []any{m.Was, m.Forward})
	require.Equal(t, []string{mine + " " + tip, "ann", "merge it"}, strings.Split(run("log", "-1", "--format=%P%n%an%n%s", "other"), "\n"))

	past := filepath.Join(t.TempDir(), "git")
	require.NoError(t, os.WriteFile(past, []byte("#!/bin/sh\n[ \"$*\" = version ] && echo git version 2.37.9 || exec "+g.Path()+" \"$@\"\n"), 0o700)) //nolint:gosec // a program
	old, err := git.At(t.Context(), past)
	require.NoError(t, err)
	side := commit("side", "c", "3\n")
	_, err = old.Merge(t.Context(), dir, side, "other", "merge it")
	require.ErrorIs(t, err, git.ErrCannotMerge)
	require.ErrorContains(t, err, "2.38 or newer is needed")

	theirs := commit("work", "a", "theirs\n")
	was := run("for-each-ref")
	m, err = g.Merge(t.Context(), dir, theirs, "other", "merge it")
	require.ErrorIs(t, err, git.ErrConflicts)
	require.Equal(t, []string{"a"}, m.Conflicts)
	require.Equal(t, was, run("for-each-ref"), "nothing was changed")
	require.NoFileExists(t, ran)
	require.NoFileExists(t, home+"/canary")
	run("checkout", "-q", "-f", "other")
	_, err = g.Merge(t.Context(), dir, theirs, "other", "merge it")
	require.ErrorIs(t, err, git.ErrCheckedOut)
	_, err = g.Merge(t.Context(), dir, theirs, "none", "merge it")
	require.ErrorContains(t, err, "no branch none")
}
