package worktree_test

import (
	"bytes"
	"crypto/sha1"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/internal/git"
	"github.com/spawnmesh/spawnmesh/spoke/worktree"
)

const most = 4 << 30

var (
	by     = worktree.By{Name: "attic <x>\n", Email: "attic@spawnmesh", When: time.Unix(1_700_000_000, 0)}
	bounds = worktree.Bounds{Files: 1_000_000, Bytes: 8 << 30, Listed: 1000}
	room   = worktree.Room{Files: 1_000_000, Bytes: 8 << 30}
)

func find(t *testing.T) *git.Git {
	t.Helper()
	g, err := git.Find(t.Context())
	require.NoError(t, err)
	return g
}

// sh runs commands as an operator or an agent does, with git as it comes.
func sh(t *testing.T, dir, script string) string {
	t.Helper()
	c := exec.Command("bash", "-ec", script)
	c.Dir = dir
	c.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=protocol.file.allow", "GIT_CONFIG_VALUE_0=always"}
	out, err := c.CombinedOutput()
	require.NoError(t, err, "%s\n%.2000s", script, out)
	return strings.TrimSpace(string(out))
}

// A task is what there is of one, from its operator to its agent.
type task struct {
	t        *testing.T
	operator string // his repository
	in       git.Input
	bundle   []byte
	repo     *worktree.Repo
	dir      string // of the repository
	work     string
}

// begin makes a repository by a script, and a working tree of it for an agent.
func begin(t *testing.T, script string) *task {
	t.Helper()
	k := &task{t: t, operator: t.TempDir()}
	sh(t, k.operator, "git init -q -b main . && git config user.name o && git config user.email o@x\n"+script)
	k.again()
	return k
}

// again begins anew with what the operator has.
func (k *task) again() {
	k.t.Helper()
	var text bytes.Buffer
	var err error
	k.dir = filepath.Join(k.t.TempDir(), "repo.git")
	k.in, err = find(k.t).BundleTree(k.t.Context(), k.operator, "", true, &text)
	require.NoError(k.t, err)
	k.bundle = text.Bytes()
	k.repo, err = worktree.Create(k.t.Context(), find(k.t), k.dir, bytes.NewReader(k.bundle), k.input())
	require.NoError(k.t, err)
	require.Equal(k.t, k.in.Origin, k.repo.Origin())
	k.work = k.checkout(k.in.Tip)
}

// input is what the order says.
func (k *task) input() worktree.Input {
	return worktree.Input{Tip: k.in.Tip, Origin: k.in.Origin, Most: most}
}

func (k *task) checkout(tip string) string {
	k.t.Helper()
	work := k.t.TempDir()
	require.NoError(k.t, k.repo.Checkout(k.t.Context(), work, "t1", tip, room))
	return work
}

func (k *task) collect(parent string) worktree.Left {
	k.t.Helper()
	left, err := k.repo.Collect(k.t.Context(), k.work, parent, 3, by, bounds)
	require.NoError(k.t, err)
	return left
}

// commits runs the command that brings an agent's commits, and takes them in.
func (k *task) commits(base string) (string, error) {
	out := filepath.Join(k.t.TempDir(), "commits")
	words := worktree.CollectCommand(find(k.t), k.work, out, base)
	c := exec.Command(words[0], words[1:]...)
	c.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent"}
	if said, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, said)
	}
	return k.repo.ImportCommits(k.t.Context(), out, base, most)
}

// result is what comes back to the operator.
func (k *task) result(tip string) git.Work {
	k.t.Helper()
	var out bytes.Buffer
	_, err := k.repo.Bundle(k.t.Context(), k.repo.Origin(), tip, "t1", &out)
	require.NoError(k.t, err)
	return git.Work{Bundle: &out, Most: most, Branch: git.Branches + "t1", Base: k.in.Origin, Tip: tip}
}

// deliver brings a tip to the operator.
func (k *task) deliver(tip string) {
	k.t.Helper()
	done, err := find(k.t).Import(k.t.Context(), k.operator, k.result(tip))
	require.NoError(k.t, err)
	require.Equal(k.t, tip, done.Tip)
}

// listed is what is in a commit of the operator's repository: mode, name, content.
func listed(t *testing.T, dir, tip string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, line := range strings.Split(sh(t, dir, "git ls-tree -r -z "+tip+" | tr '\\0' '\\1'"), "\x01") {
		if head, name, ok := strings.Cut(line, "\t"); ok {
			f := strings.Fields(head)
			all[name] = f[0] + " " + f[2]
		}
	}
	return all
}

// onDisk is the same of a directory.
func onDisk(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.Name() == ".git" {
			if err == nil && e.IsDir() {
				return fs.SkipDir
			}
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(path, dir+"/")
		switch {
		case e.Type() == fs.ModeSymlink:
			to, err := os.Readlink(path)
			all[name] = "120000 " + hash(int64(len(to)), strings.NewReader(to))
			return err
		case e.Type().IsRegular():
			f, err := os.Open(path)
			if err != nil {
				return err
			}
			defer f.Close()
			mode := "100644 "
			if info.Mode()&0o100 != 0 {
				mode = "100755 "
			}
			all[name] = mode + hash(info.Size(), f)
		}
		return nil
	}))
	return all
}

// hash is the name that git gives to a file.
func hash(size int64, r io.Reader) string {
	h := sha1.New()
	fmt.Fprintf(h, "blob %d\x00", size)
	_, _ = io.Copy(h, r)
	return fmt.Sprintf("%x", h.Sum(nil))
}

func mkfifo(t *testing.T, path string) {
	t.Helper()
	require.NoError(t, syscall.Mkfifo(path, 0o600))
}

const some = `mkdir -p d/e && echo a > a && printf 'b\r\nb\r\n' > d/b && echo '$Id$' > d/e/c && ln -s ../a d/link && ln -s /etc/passwd out && echo run > tool && chmod +x tool && printf '\0\1\2' > bin
printf '*.o\n/build/\n!keep.o\n' > .gitignore && printf '* text=auto eol=lf\n*.x filter=evil diff=evil ident\nc ident\n' > .gitattributes && echo force > f.o && git add -f . && git commit -qm first && echo dirt > dirt`

func TestAWorkingTreeIsTheTree(t *testing.T) {
	t.Parallel()
	k := begin(t, some)
	want := listed(t, k.dir, k.in.Tip)
	require.Len(t, want, 11)
	require.Equal(t, want, onDisk(t, k.work))
	require.Equal(t, "spawnmesh/t1 "+k.in.Tip, sh(t, k.work, "echo $(git branch --show-current) $(git rev-parse HEAD)"))
	require.Empty(t, sh(t, k.work, "git status --porcelain"))
	require.NoFileExists(t, k.work+"/.git/objects/info/alternates")
	require.Empty(t, sh(t, k.work, "find . -type f -links +1"))
	sh(t, k.work, "echo more >> a && git add a && git commit -qm mine && git fsck --strict && test \"$(git show -s --format='%an %ae')\" = 'agent agent@spawnmesh'")
	require.Equal(t, "+more", sh(t, k.work, "git diff HEAD~1 | tail -1"))

	require.ErrorContains(t, k.repo.Checkout(t.Context(), k.work, "t1", k.in.Tip, room), "empty directory")
	err := k.repo.Checkout(t.Context(), t.TempDir(), "t1", k.in.Tip, worktree.Room{Files: 5, Bytes: 1000})
	require.ErrorIs(t, err, worktree.ErrTooMany)
	err = k.repo.Checkout(t.Context(), t.TempDir(), "t1", k.in.Tip, worktree.Room{Files: 500, Bytes: 10})
	require.ErrorIs(t, err, worktree.ErrTooLarge)
}

func TestWhatAnAgentLeftComesToTheOperator(t *testing.T) {
	t.Parallel()
	k := begin(t, some)
	nothing := k.collect(k.in.Tip)
	require.False(t, nothing.Made)
	require.Equal(t, k.in.Tip, nothing.Tip)
	require.True(t, nothing.Lossless())
	_, err := k.repo.Bundle(t.Context(), k.in.Tip, k.in.Tip, "t1", nil)
	require.ErrorIs(t, err, worktree.ErrNothing)
	_, err = k.commits(k.in.Tip)
	require.Error(t, err, "it has made no commits")

	sh(t, k.work, "echo 1 > new && git add new && git commit -qm one && git mv a moved && git commit -qm two && echo 2 >> new && rm d/b && chmod -x tool && echo changed > f.o && mkdir build && echo o > build/o && echo x > x.o && echo k > keep.o && rm out && ln -s nowhere out")
	tip, err := k.commits(k.in.Tip)
	require.NoError(t, err)
	require.Equal(t, sh(t, k.work, "git rev-parse HEAD"), tip)
	left := k.collect(tip)
	require.True(t, left.Made)
	require.Equal(t, []worktree.Missing{{"build/", worktree.Ignored}, {"x.o", worktree.Ignored}}, left.Missing)
	require.False(t, left.Lossless())
	require.True(t, left.LosslessButIgnored())
	require.Equal(t, left, k.collect(tip), "a repeat makes the same commit")

	k.deliver(left.Tip)
	want := onDisk(t, k.work)
	delete(want, "build/o")
	delete(want, "x.o")
	require.Equal(t, want, listed(t, k.operator, "spawnmesh/t1"))
	require.Equal(t, "spawnmesh: left by attempt 3\ntwo\none\nspawnmesh: uncommitted files\nfirst", sh(t, k.operator, "git log --format=%s spawnmesh/t1"))
	require.Equal(t, "attic x attic@spawnmesh 1700000000", sh(t, k.operator, "git show -s --format='%an %ae %ct' spawnmesh/t1"))
	sh(t, k.dir, "git fsck --strict")

	k.work = k.checkout(left.Tip) // the next attempt
	require.Equal(t, want, onDisk(t, k.work))
	require.False(t, k.collect(left.Tip).Made)
}

func TestARepositoryIsMadeOfWhatWasOrdered(t *testing.T) {
	t.Parallel()
	k := begin(t, some)
	again, err := worktree.Create(t.Context(), find(t), k.dir, bytes.NewReader(nil), k.input())
	require.NoError(t, err, "it is there already")
	require.Equal(t, k.in.Tip, again.Tip())
	_, err = worktree.Create(t.Context(), find(t), k.dir, bytes.NewReader(k.bundle), worktree.Input{Tip: strings.Repeat("1", 40), Origin: k.in.Origin, Most: most})
	require.ErrorIs(t, err, worktree.ErrNotOrdered)
	_, err = worktree.Open(t.Context(), find(t), k.dir+"x")
	require.ErrorIs(t, err, fs.ErrNotExist)

	needy := bytes.Replace(k.bundle, []byte("bundle\n"), []byte("bundle\n-"+k.in.Origin+" x\n"), 1)
	strange := bytes.Replace(k.bundle, []byte("\n\n"), []byte("\n"+k.in.Tip+" refs/heads/main\n\n"), 1)
	for name, tt := range map[string]struct {
		text []byte
		in   worktree.Input
		want error
	}{
		"another commit": {k.bundle, worktree.Input{Tip: k.in.Origin, Origin: k.in.Origin, Most: most}, worktree.ErrNotOrdered},
		"another origin": {k.bundle, worktree.Input{Tip: k.in.Tip, Origin: k.in.Tip, Most: most}, worktree.ErrNotOrdered},
		"no name":        {k.bundle, worktree.Input{Tip: "HEAD", Origin: "HEAD", Most: most}, worktree.ErrNotOrdered},
		"needs":          {needy, k.input(), worktree.ErrNotOrdered},
		"refs":           {strange, k.input(), worktree.ErrNotOrdered},
		"cut off":        {k.bundle[:len(k.bundle)-1], k.input(), git.ErrBad},
		"too large":      {k.bundle, worktree.Input{Tip: k.in.Tip, Origin: k.in.Origin, Most: int64(len(k.bundle)) - 1}, git.ErrTooLarge},
	} {
		dir := filepath.Join(t.TempDir(), "r")
		_, err := worktree.Create(t.Context(), find(t), dir, bytes.NewReader(tt.text), tt.in)
		require.ErrorIs(t, err, tt.want, name)
		list, err := os.ReadDir(filepath.Dir(dir))
		require.NoError(t, err)
		require.Empty(t, list, name)
	}
	require.NoError(t, os.Mkdir(k.dir+"2.new", 0o700)) // a crash left it
	_, err = worktree.Create(t.Context(), find(t), k.dir+"2", bytes.NewReader(k.bundle), k.input())
	require.NoError(t, err)
}
