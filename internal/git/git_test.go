package git_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/internal/git"
)

// home is the operator's: his own configuration, which has what nobody but him wants to run.
var home string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "spawnmesh-git-test-")
	if err != nil {
		panic(err)
	}
	home = dir
	os.Setenv("HOME", dir)
	text := "[user]\n name = operator\n email = operator@example.org\n[core]\n hooksPath = " + dir + "/hooks\n excludesFile = " + dir + "/ignore\n[protocol \"file\"]\n allow = always\n"
	for _, err := range []error{os.WriteFile(dir+"/.gitconfig", []byte(text), 0o600), os.WriteFile(dir+"/ignore", []byte("*.mine\n"), 0o600), os.Mkdir(dir+"/hooks", 0o700)} {
		if err != nil {
			panic(err)
		}
	}
	for _, hook := range []string{"post-checkout", "pre-commit", "reference-transaction", "post-index-change", "pre-auto-gc", "post-commit", "pre-push"} {
		if err := os.WriteFile(dir+"/hooks/"+hook, []byte("#!/bin/sh\necho ran >> "+dir+"/canary\n"), 0o700); err != nil {
			panic(err)
		}
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

func find(t *testing.T) *git.Git {
	t.Helper()
	g, err := git.Find(t.Context())
	require.NoError(t, err)
	return g
}

// sh runs commands as the operator does, but for his hooks.
func sh(t *testing.T, dir, script string) string {
	t.Helper()
	c := exec.Command("sh", "-ec", script)
	c.Dir = dir
	c.Env = append(os.Environ(), "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=core.hooksPath", "GIT_CONFIG_VALUE_0=/dev/null", "GIT_AUTHOR_DATE=@1000 +0000", "GIT_COMMITTER_DATE=@1000 +0000")
	out, err := c.CombinedOutput()
	require.NoError(t, err, "%s\n%s", script, out)
	return strings.TrimSpace(string(out))
}

func repo(t *testing.T, script string) string {
	t.Helper()
	dir := t.TempDir()
	sh(t, dir, "git init -q -b main . && echo one > a && git add a && git commit -qm first\n"+script)
	return dir
}

// state is all that is below a directory, with times: what must not change.
func state(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	require.NoError(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		fmt.Fprint(&all, path, info.Mode())
		if !strings.Contains(path, "/objects/") { // git says by it that an object is in use
			fmt.Fprint(&all, info.ModTime().UnixNano())
		}
		if info.Mode().IsRegular() {
			text, _ := os.ReadFile(path)
			fmt.Fprintf(&all, "%x", sha256.Sum256(text))
		}
		fmt.Fprintln(&all)
		return err
	}))
	return all.String()
}

func bundle(t *testing.T, dir, ref string, dirty bool) (git.Input, []byte) {
	t.Helper()
	var out bytes.Buffer
	before := state(t, dir)
	in, err := find(t).BundleTree(t.Context(), dir, ref, dirty, &out)
	require.NoError(t, err)
	require.EqualValues(t, out.Len(), in.Size)
	require.True(t, before == state(t, dir), "the repository is as it was")
	require.NoFileExists(t, home+"/canary")
	return in, out.Bytes()
}

// files is what git itself makes of a bundle, by its own ways.
func files(t *testing.T, text []byte, tip string) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(dir+"/b", text, 0o600))
	return sh(t, dir, "git init -q r && cd r && git fetch -q ../b "+git.InputRef+" && test $(git rev-parse FETCH_HEAD) = "+tip+" && git ls-tree -r "+tip+" | sed 's/ .* .*\t/ /'")
}

func TestABundleIsOfTheCommitOfATree(t *testing.T) {
	t.Parallel()
	dir := repo(t, "echo two > b && git add b && git commit -qm second && git tag v2 && echo three > c && git add c && git commit -qm third && mkdir sub && echo dirt > sub/d")
	in, text := bundle(t, dir, "", false)
	require.Equal(t, sh(t, dir, "git rev-parse HEAD"), in.Tip)
	require.Equal(t, in.Tip, in.Origin)
	require.Equal(t, "100644 a\n100644 b\n100644 c", files(t, text, in.Tip))
	again, same := bundle(t, dir+"/sub", "HEAD", false)
	require.Equal(t, in, again)
	require.Equal(t, text, same)

	in, text = bundle(t, dir, "v2", false)
	require.Equal(t, sh(t, dir, "git rev-parse v2"), in.Tip)
	require.Equal(t, "100644 a\n100644 b", files(t, text, in.Tip))
}

func TestUncommittedFilesAreACommitOfTheirOwn(t *testing.T) {
	t.Parallel()
	dir := repo(t, `echo x > gone && echo run > tool && printf '*.o\nout/\n' > .gitignore && git add . && git commit -qm more`)
	clean, _ := bundle(t, dir, "", true)
	require.Equal(t, sh(t, dir, "git rev-parse HEAD"), clean.Tip, "nothing is uncommitted")
	sh(t, dir, `echo changed > a; rm gone; chmod +x tool; ln -s a link; mkdir -p deep/er out; echo n > deep/er/new; echo i > x.o; echo i > out/o; echo s > staged; git add staged; echo s2 > staged; printf nl > "$(printf 'n\nl')"; echo m > x.mine; mkfifo pipe
git init -q nested; echo n > nested/n; git init -q born; git -C born commit -q --allow-empty -m x`)
	in, text := bundle(t, dir, "", true)
	require.Equal(t, "100644 .gitignore\n100644 a\n100644 deep/er/new\n120000 link\n100644 \"n\\nl\"\n100644 staged\n100755 tool", files(t, text, in.Tip))
	require.Equal(t, clean.Tip, in.Origin)
	require.Zero(t, clean.Changed)
	require.Equal(t, 7, in.Changed, "and one is gone")
	require.ElementsMatch(t, []string{"nested", "born"}, in.Without)
	again, same := bundle(t, dir, "", true)
	require.Equal(t, in, again)
	require.Equal(t, text, same)

	_, err := find(t).BundleTree(t.Context(), dir, "HEAD~1", true, io.Discard)
	require.ErrorContains(t, err, "send one or the other")
	sh(t, dir, "git -c protocol.file.allow=always submodule add -q ./born subm")
	in, _ = bundle(t, dir, "", true)
	require.Contains(t, in.Without, "subm")
}

// The operator's own filters say what his files are, as for "git add".
func TestAFilterOfTheOperatorIsHis(t *testing.T) {
	t.Parallel()
	dir := repo(t, `git config filter.up.clean 'tr a-z A-Z' && echo '*.up filter=up' > .gitattributes && echo text > f.up`)
	in, text := bundle(t, dir, "", true)
	other := t.TempDir()
	require.NoError(t, os.WriteFile(other+"/b", text, 0o600))
	require.Equal(t, "TEXT", sh(t, other, "git init -q . && git fetch -q b "+git.InputRef+" && git show "+in.Tip+":f.up"))
}

// A file that changes within the same tick of the clock as the index is looked at again.
func TestAFileOfTheSameMomentIsRead(t *testing.T) {
	t.Parallel()
	dir := repo(t, "")
	sh(t, dir, "echo aaa > a; touch -d @2000 a; git add a; touch -d @2000 .git/index; echo bbb > a; touch -d @2000 a")
	in, text := bundle(t, dir, "", true)
	other := t.TempDir()
	require.NoError(t, os.WriteFile(other+"/b", text, 0o600))
	require.Equal(t, "bbb", sh(t, other, "git init -q . && git fetch -q b "+git.InputRef+" && git show "+in.Tip+":a"))
}

func TestARepositoryWithoutACommit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	sh(t, dir, "git init -q . && echo x > x")
	for _, dirty := range []bool{false, true} {
		_, err := find(t).BundleTree(t.Context(), dir, "", dirty, io.Discard)
		require.ErrorIs(t, err, git.ErrNoCommit)
		require.ErrorContains(t, err, "git commit --allow-empty")
	}
}

func TestWhatHasNoBundleSaysWhy(t *testing.T) {
	t.Parallel()
	from := repo(t, "echo 2 > a; git commit -qam 2; git config uploadpack.allowFilter true")
	for name, tt := range map[string]struct {
		script, path string
		dirty        bool
		want         string
	}{
		"no repository":    {"mkdir r", "r", false, "not in a git repository"},
		"no path":          {"true", "r", false, "no such file"},
		"a file":           {"echo > r", "r", false, "is no directory"},
		"shallow":          {"git clone -q --depth 1 file://" + from + " r", "r", false, "git fetch --unshallow"},
		"partial":          {"git clone -q --no-checkout --filter=blob:none file://" + from + " r", "r", false, "lacks 2 objects"},
		"bare and dirty":   {"git clone -q --bare " + from + " r", "r", true, "no working tree"},
		"in its directory": {"git init -q r", "r/.git", true, "no working tree"},
		"broken":           {"git clone -q " + from + " r; find r/.git/objects -type f -exec rm -f {} +; rm -f r/.git/objects/pack/*", "r", false, "no commit"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			sh(t, dir, tt.script)
			_, err := find(t).BundleTree(t.Context(), filepath.Join(dir, tt.path), "", tt.dirty, io.Discard)
			require.ErrorContains(t, err, tt.want)
			t.Log(err)
		})
	}
	in, _ := bundle(t, from, "", false)
	bare := t.TempDir()
	sh(t, bare, "git clone -q --bare "+from+" r")
	same, _ := bundle(t, bare+"/r", "", false)
	require.Equal(t, in.Tip, same.Tip)
	linked := t.TempDir()
	sh(t, from, "git worktree add -q "+linked+"/w && echo dirt > "+linked+"/w/dirt")
	of, text := bundle(t, linked+"/w", "", true)
	require.Equal(t, in.Tip, of.Origin)
	require.Equal(t, "100644 a\n100644 dirt", files(t, text, of.Tip))
}

func TestAGitThatIsTooOldIsNamed(t *testing.T) {
	t.Parallel()
	for version, works := range map[string]bool{"2.33.9": false, "1.99": false, "2.34.0": true, "2.39.5 (Apple Git-154)": true, "3.0": true, "2.100.windows.1": true, "banana": false} {
		path := filepath.Join(t.TempDir(), "git")
		require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\necho git version "+fmt.Sprintf("'%s'", version)+"\n"), 0o700))
		_, err := git.At(t.Context(), path)
		if works {
			require.NoError(t, err, version)
			continue
		}
		require.ErrorIs(t, err, git.ErrNoGit, version)
		require.ErrorContains(t, err, "apt-get install git", version)
	}
	_, err := git.At(t.Context(), "/nonexistent/git")
	require.ErrorIs(t, err, git.ErrNoGit)
}

func TestNoGit(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := git.Find(t.Context())
	require.ErrorIs(t, err, git.ErrNoGit)
	require.ErrorContains(t, err, "not on the PATH: install git")
}

// Variables of this process lead git nowhere.
func TestTheEnvironmentOfTheProcessIsNotGits(t *testing.T) {
	dir := repo(t, "")
	for name, value := range map[string]string{"GIT_DIR": "/nonexistent", "GIT_WORK_TREE": "/", "GIT_INDEX_FILE": "/nonexistent", "GIT_TRACE": home + "/canary", "GIT_EXEC_PATH": home,
		"GIT_CONFIG_PARAMETERS": "'alias.rev-parse=!touch " + home + "/canary'", "GIT_EXTERNAL_DIFF": "touch " + home + "/canary"} {
		t.Setenv(name, value)
	}
	in, err := find(t).BundleTree(t.Context(), dir, "", true, io.Discard)
	require.NoError(t, err)
	require.Len(t, in.Tip, 40)
	require.NoFileExists(t, home+"/canary")
}

func TestARunEndsWithItsContext(t *testing.T) {
	t.Parallel()
	dir := repo(t, "")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	err := find(t).Run(ctx, git.Call{Dir: dir, Args: []string{"-c", "alias.x=!sleep 100 & sleep 100", "x"}})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Less(t, time.Since(began), 20*time.Second)
}

func TestErrorsSayWhatGitSaid(t *testing.T) {
	t.Parallel()
	err := find(t).Run(t.Context(), git.Call{Args: []string{"rev-parse", "--verify", "a\x1b[2Jb" + strings.Repeat("x", 10_000)}})
	require.ErrorContains(t, err, "git rev-parse ended with 128")
	require.NotContains(t, err.Error(), "\x1b")
	require.Less(t, len(err.Error()), 4000)
	_, err = find(t).Output(t.Context(), git.Call{Args: []string{"rev-parse", "--sq-quote", strings.Repeat("x", 100_000)}})
	require.NoError(t, err)
}

func TestARunHasNoConfigurationOfTheHost(t *testing.T) {
	t.Parallel()
	dir := repo(t, "")
	for _, own := range []bool{false, true} {
		g := find(t)
		if own {
			g = g.Operator()
		}
		text, err := g.Output(t.Context(), git.Call{Dir: dir, Args: []string{"config", "--list"}})
		require.NoError(t, err)
		require.Equal(t, own, strings.Contains(text, "user.email=operator@example.org"))
		text, err = g.Output(t.Context(), git.Call{Dir: dir, Args: []string{"config", "core.hooksPath"}})
		require.NoError(t, err)
		require.Equal(t, "/dev/null\n", text)
	}
}
