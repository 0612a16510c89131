package worktree_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/spawnmesh/spawnmesh/internal/git"
	"github.com/spawnmesh/spawnmesh/internal/scale"
	"github.com/spawnmesh/spawnmesh/spoke/worktree"
)

// traps has everything of a .git run a program that leaves a file.
const traps = `T="touch $CANARY"; mkdir -p .git/hooks
for h in post-checkout pre-commit post-commit reference-transaction post-index-change pre-auto-gc fsmonitor-watchman update pre-push sendemail-validate; do printf '#!/bin/sh\n%s\n' "$T" > .git/hooks/$h; chmod +x .git/hooks/$h; done
git config core.fsmonitor "$T"; git config core.hooksPath "$PWD/.git/hooks"; git config core.pager "$T"; git config core.editor "$T"; git config core.sshCommand "$T"; git config diff.external "$T"; git config core.alternateRefsCommand "$T"
git config filter.evil.clean "$T"; git config filter.evil.smudge "$T"; git config filter.evil.process "$T"; git config filter.evil.required true; git config diff.evil.textconv "$T"; git config diff.evil.command "$T"; git config merge.evil.driver "$T"
git config include.path "$PWD/more"; git config includeIf.gitdir:/.path "$PWD/more"; git config core.worktree /; git config gpg.program "$T"; git config commit.gpgSign true; git config uploadpack.packObjectsHook "$T"; git config credential.helper "!$T"
printf '[core]\n fsmonitor = %s\n' "$T" > more; cp -r .git copy.git; rm -f .git/info/attributes; printf '* filter=evil diff=evil merge=evil text ident working-tree-encoding=UTF-16\n' > .gitattributes
cat > .gitmodules <<'X'
[submodule "x"]
	path = x
	url = ./x
	update = !touch /tmp/x
X
`

// What an agent plants runs nothing, whatever the daemon and the operator do with what it left.
func TestNothingPlantedRuns(t *testing.T) {
	t.Parallel()
	k := begin(t, some)
	canary := filepath.Join(t.TempDir(), "canary")
	sh(t, k.work, "CANARY="+canary+"\n"+traps+"\nprintf 'a\\r\\n$Id$\\n' > text.x")

	left := k.collect(k.in.Tip)

	require.Equal(t, worktree.Missing{Path: ".gitmodules", Reason: worktree.Refused}, left.Missing[0])
	require.EqualValues(t, left.Counts[worktree.Empty]+1, len(left.Missing))
	k.deliver(left.Tip)
	require.Equal(t, "a\r\n$Id$", sh(t, k.operator, "git show spawnmesh/t1:text.x"))
	k.checkout(left.Tip)
	var out bytes.Buffer
	require.NoError(t, find(t).Diff(t.Context(), k.operator, k.result(left.Tip), &out))
	require.NoFileExists(t, canary)
	listing := listed(t, k.operator, "spawnmesh/t1")
	require.Contains(t, listing, "copy.git/config", "it is files as others")
	require.Equal(t, onDisk(t, k.work)["text.x"], listing["text.x"])
}

// The .git of a tree may be anything: nobody looks at it.
func TestTheGitOfATreeIsNotLookedAt(t *testing.T) {
	t.Parallel()
	k := begin(t, some)
	want := k.collect(k.in.Tip)
	elsewhere := t.TempDir()
	sh(t, elsewhere, "git init -q .")
	for _, script := range []string{"", "mkfifo .git", "echo gitdir: " + elsewhere + "/.git > .git", "ln -s " + elsewhere + "/.git .git", "mkdir .git && mkfifo .git/HEAD .git/config .git/index",
		"mkdir -p .git/objects/info && echo /etc > .git/objects/info/alternates", "mkdir -m 0 .git"} {
		sh(t, k.work, "rm -rf .git; "+script)
		require.Equal(t, want, k.collect(k.in.Tip), script)
	}
	sh(t, k.work, "mv "+k.work+" "+k.work+"-2; ln -s "+k.work+"-2 "+k.work)
	_, err := k.repo.Collect(t.Context(), k.work, k.in.Tip, 1, by, bounds)
	require.ErrorIs(t, err, syscall.ENOTDIR, "the tree itself may be no link")
}

func TestWhatCannotBeHeldIsTold(t *testing.T) {
	t.Parallel()
	k := begin(t, some+`; mkdir ign && echo in > ign/in && echo ign >> .gitignore; git add -f .; git commit -qm more
git init -q ../sub-$$ && git -C ../sub-$$ -c user.name=x -c user.email=x commit -q --allow-empty -m s && git -c protocol.file.allow=always submodule --quiet add ../sub-$$ sub && git -c protocol.file.allow=always submodule --quiet add ../sub-$$ full && git commit -qm subs`)
	require.ElementsMatch(t, []string{"sub", "full"}, k.in.Without)
	require.False(t, k.collect(k.in.Tip).Made, "submodules are empty, and stay what they are")

	long, name := strings.Repeat("long/", 900), strings.Repeat("n", 255)
	sh(t, k.work, `echo x > full/x; mkdir -p empty/er nested/deep; git init -q nested; echo n > nested/deep/n; echo gitdir: / > nested/deep/.git
mkfifo pipe; rm d/b; mkfifo d/b; mkdir .GIT; echo x > .GIT/config; echo x > 'git~1'; echo x > a.o; echo x > ign/new; echo changed > ign/in; echo odd > $'odd\n\xff\e[2J'; mkdir -p `+long+`; (cd `+strings.Repeat("long/", 450)+` && cd `+strings.Repeat("long/", 450)+` && echo x > x)
echo x > `+name+`; printf 'sparse' > big; truncate -s 5M big; echo z > z; mkdir zz; mkfifo zz/.gitignore; echo y > zz/y; mkdir yy; ln -s /etc/passwd yy/.gitignore; mkdir xx; head -c 200000 /dev/zero > xx/.gitignore; ln -s /nonexistent .mailmap`)
	socket, err := net.Listen("unix", filepath.Join(k.work, "socket"))
	require.NoError(t, err)
	defer socket.Close()
	foreign := 0
	if os.Geteuid() == 0 {
		foreign = 1
		require.NoError(t, unix.Mknod(filepath.Join(k.work, "device"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))))
		require.NoError(t, os.WriteFile(filepath.Join(k.work, "secret"), []byte("s"), 0o600))
		require.NoError(t, os.Chown(filepath.Join(k.work, "secret"), 65534, 65534))
	}

	left, err := k.repo.Collect(t.Context(), k.work, k.in.Tip, 1, by, worktree.Bounds{Files: 1000, Bytes: 1 << 20, Listed: 1000})

	require.NoError(t, err)
	var got []string
	for _, m := range left.Missing {
		path, _, _ := strings.Cut(m.Path, "long/")
		if path == "" {
			path = "long"
		}
		got = append(got, fmt.Sprint(path, ":", m.Reason))
	}
	want := []string{".GIT:bad_name", "a.o:ignored", "big:too_large", "d/b:special", "empty/er/:empty", "full/:submodule", "git~1:bad_name", "ign/new:ignored", "long:bad_name", "nested/.git:nested", "nested/deep/.git:nested",
		"pipe:special", "socket:special", "xx/.gitignore:rules", "yy/.gitignore:rules", "zz/.gitignore:rules", "zz/.gitignore:special"}
	if foreign > 0 {
		want = append(want, "device:special", "secret:foreign")
	}
	require.ElementsMatch(t, want, got)
	require.False(t, left.LosslessButIgnored())
	var all int64
	for _, n := range left.Counts {
		all += n
	}
	require.EqualValues(t, len(left.Missing), all)

	k.deliver(left.Tip)
	has := listed(t, k.operator, "spawnmesh/t1")
	for _, path := range []string{"nested/deep/n", "ign/in", name, "odd\n\xff\x1b[2J", "yy/.gitignore", "zz/y", ".mailmap", "sub", "full"} {
		require.Contains(t, has, path)
	}
	require.True(t, strings.HasPrefix(has["full"], "160000 "))
	require.Equal(t, listed(t, k.dir, k.in.Tip)["d/b"], has["d/b"], "what cannot be read is not gone")
	require.Equal(t, "changed", sh(t, k.operator, "git show spawnmesh/t1:ign/in"), "what a commit has is not ignored")
	for _, path := range []string{"ign/new", "big", "secret", "full/x"} {
		require.NotContains(t, has, path)
	}
	few, err := k.repo.Collect(t.Context(), k.work, k.in.Tip, 1, by, worktree.Bounds{Files: 3, Bytes: 1 << 20, Listed: 2})
	require.NoError(t, err)
	require.Len(t, few.Missing, 2)
	require.EqualValues(t, 3, few.Files)
	require.NotZero(t, few.Counts[worktree.TooMany])
}

// Files that may not be read, as the user that a spoke is where it is not root.
func TestWhatMayNotBeReadIsTold(t *testing.T) {
	t.Parallel()
	if os.Getenv("SPAWNMESH_UNREADABLE") == "" {
		c := exec.Command(os.Args[0], "-test.run=^TestWhatMayNotBeReadIsTold$", "-test.v")
		c.Env = append(os.Environ(), "SPAWNMESH_UNREADABLE=1")
		if os.Geteuid() == 0 {
			c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
			dir, err := os.MkdirTemp("", "spawnmesh-unreadable-")
			require.NoError(t, err)
			defer os.RemoveAll(dir)
			require.NoError(t, os.Chmod(dir, 0o777))
			text, err := os.ReadFile(os.Args[0])
			require.NoError(t, err)
			c.Path = dir + "/test"
			require.NoError(t, os.WriteFile(c.Path, text, 0o755))
			c.Dir = dir
			c.Env = append(c.Env, "TMPDIR="+dir)
		}
		out, err := c.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return
	}
	k := begin(t, some)
	sh(t, k.work, "chmod 0 a d; echo x > closed; chmod 0 closed")
	left := k.collect(k.in.Tip)
	require.Equal(t, []worktree.Missing{{"a", worktree.Unreadable}, {"closed", worktree.Unreadable}, {"d", worktree.Unreadable}}, left.Missing)
	require.False(t, left.Made, "what cannot be read is not gone")
	sh(t, k.work, "chmod 700 d")
}

func TestCommitsOfAnAgentAreChecked(t *testing.T) {
	t.Parallel()
	k := begin(t, some)
	file := func(text []byte) string {
		path := filepath.Join(t.TempDir(), "f")
		require.NoError(t, os.WriteFile(path, text, 0o600))
		return path
	}
	dir := t.TempDir()
	mkfifo(t, dir+"/pipe")
	require.NoError(t, os.Symlink(file(k.bundle), dir+"/link"))
	require.NoError(t, os.Symlink(dir+"/loop", dir+"/loop"))
	socket, err := net.Listen("unix", dir+"/socket")
	require.NoError(t, err)
	defer socket.Close()
	for _, path := range []string{dir + "/pipe", dir + "/link", dir + "/loop", dir + "/socket", dir, "/dev/zero"} {
		_, err := k.repo.ImportCommits(t.Context(), path, k.in.Tip, most)
		require.ErrorIs(t, err, worktree.ErrNoFile, path)
	}
	_, err = k.repo.ImportCommits(t.Context(), dir+"/nothing", k.in.Tip, most)
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = k.repo.ImportCommits(t.Context(), file(k.bundle), k.in.Tip, most)
	require.ErrorIs(t, err, git.ErrNoBundle, "it has no HEAD")

	objects := sh(t, k.dir, "find . -type f | sort")
	for name, script := range map[string]string{
		"another history": "git checkout -q --orphan new && git commit -qm new",
		"before the base": "git reset -q --hard HEAD~1 && git commit -q --allow-empty -m beside",
		"a bad tree":      `t=$({ printf '100644 .git\0'; git rev-parse HEAD:a | xxd -r -p; } | git hash-object -t tree -w --stdin --literally) && git reset -q --soft $(git commit-tree -p HEAD -m evil $t)`,
		"bad .gitmodules": `printf '[submodule "x"]\npath=x\nurl=--upload-pack=x\n' > .gitmodules && git add . && git commit -qm evil`,
	} {
		k.work = k.checkout(k.in.Tip)
		sh(t, k.work, script)
		out := filepath.Join(t.TempDir(), "b")
		sh(t, k.work, "git bundle create -q "+out+" HEAD")
		_, err := k.repo.ImportCommits(t.Context(), out, k.in.Tip, most)
		require.Error(t, err, name)
		t.Log(name, err)
	}
	require.Equal(t, objects, sh(t, k.dir, "find . -type f | sort"), "nothing was imported")

	k.work = k.checkout(k.in.Tip)
	sh(t, k.work, "git checkout -q --orphan other && git commit -qm other && git checkout -q spawnmesh/t1 && git merge -q --allow-unrelated-histories -X ours -m merged other")
	tip, err := k.commits(k.in.Tip)
	require.NoError(t, err, "what was merged comes along")
	require.Equal(t, sh(t, k.work, "git rev-parse HEAD"), tip)
	_, err = k.repo.ImportCommits(t.Context(), filepath.Join(t.TempDir(), "x"), k.in.Tip, 10)
	require.Error(t, err)
}

// A few hundred bytes that say a billion files, and a file that unfolds to gigabytes.
func TestATreeThatExplodesIsRefused(t *testing.T) {
	t.Parallel()
	k := begin(t, some)
	tip := sh(t, k.dir, `export GIT_AUTHOR_NAME=x GIT_AUTHOR_EMAIL=x GIT_COMMITTER_NAME=x GIT_COMMITTER_EMAIL=x
id=$(echo boom | git hash-object -w --stdin); kind="100644 blob"
for level in 1 2 3 4 5 6 7 8 9; do id=$(for i in 0 1 2 3 4 5 6 7 8 9; do printf "$kind $id\tf$i\n"; done | git mktree); kind="040000 tree"; done
git commit-tree -m bomb $id`)
	began := time.Now()
	err := k.repo.Checkout(t.Context(), t.TempDir(), "t1", tip, worktree.Room{Files: 100_000, Bytes: 1 << 30})
	require.ErrorIs(t, err, worktree.ErrTooMany)
	require.Less(t, time.Since(began), 20*time.Second)
}

func TestManySmallFiles(t *testing.T) {
	t.Parallel()
	k := begin(t, some)
	n := scale.Larger(t, "SPAWNMESH_SMALL_FILES", 5_000, 100_000)
	for _, name := range []string{"flat", "deep"} {
		require.NoError(t, os.Mkdir(filepath.Join(k.work, name), 0o700))
	}
	for i := range n {
		path := filepath.Join(k.work, "flat", fmt.Sprint(i))
		if i%2 == 1 {
			path = filepath.Join(k.work, "deep", fmt.Sprint(i%200), fmt.Sprint(i))
			if i < 200 {
				require.NoError(t, os.Mkdir(filepath.Dir(path), 0o700))
			}
		}
		require.NoError(t, os.WriteFile(path, fmt.Appendln(nil, i), 0o600))
	}
	began := time.Now()
	left := k.collect(k.in.Tip)
	t.Log(n, "files in", time.Since(began))
	require.True(t, left.Lossless())
	require.EqualValues(t, n+11, left.Files)
	began = time.Now()
	k.deliver(left.Tip)
	t.Log("delivered in", time.Since(began))
	require.Equal(t, fmt.Sprint(n+11), sh(t, k.operator, "git ls-tree -r spawnmesh/t1 | wc -l"))
	began = time.Now()
	require.False(t, k.collect(left.Tip).Made)
	t.Log("compared in", time.Since(began))
}

// Memory does not grow with the size of a file.
func TestAHugeFileStreams(t *testing.T) {
	t.Parallel()
	k := begin(t, some)
	size := int64(scale.Larger(t, "SPAWNMESH_HUGE_FILE", 40, 1000)) << 20
	f, err := os.Create(filepath.Join(k.work, "huge"))
	require.NoError(t, err)
	block := make([]byte, 1<<20)
	for at := int64(0); at < size; at += 1 << 20 {
		copy(block, fmt.Sprint(at))
		for i := 64; i < len(block)/2; i++ {
			block[i] = byte(i*7) ^ byte(at>>20)
		}
		_, err := f.Write(block)
		require.NoError(t, err)
	}
	require.NoError(t, f.Close())
	left := k.collect(k.in.Tip)
	require.True(t, left.Lossless())
	k.deliver(left.Tip)
	next := k.checkout(left.Tip)
	require.Equal(t, onDisk(t, k.work)["huge"], onDisk(t, next)["huge"])
	var use unix.Rusage
	require.NoError(t, unix.Getrusage(unix.RUSAGE_CHILDREN, &use))
	t.Logf("largest child %d MiB", use.Maxrss>>10)
	if scale.Long() {
		require.Less(t, use.Maxrss>>10, int64(700))
	}
}

// What a killed process left is no part of the repository, and is gone when it is opened again.
func TestWhatACrashLeftIsSwept(t *testing.T) {
	t.Parallel()
	k := begin(t, some)
	sh(t, k.work, "echo new > new")
	want := k.collect(k.in.Tip)
	files := sh(t, k.dir, "find . -type f | sort")
	for range 3 {
		require.Equal(t, want, k.collect(k.in.Tip))
	}
	require.Equal(t, files, sh(t, k.dir, "find . -type f | sort"), "a repeat adds nothing")
	sh(t, k.dir, "mkdir -p objects/"+git.Drafts+"1/pack objects/"+git.Drafts+"2; echo x > objects/"+git.Drafts+"1/pack/tmp_pack; echo x > objects/"+git.Drafts+"3")
	var err error
	k.repo, err = worktree.Open(t.Context(), find(t), k.dir)
	require.NoError(t, err)
	require.Equal(t, files, sh(t, k.dir, "find . -type f | sort"))
	require.Equal(t, want, k.collect(k.in.Tip))
	require.False(t, slices.Contains(strings.Split(sh(t, k.dir, "ls"), "\n"), "gc.log"))
}
