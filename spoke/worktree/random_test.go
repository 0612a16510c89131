package worktree_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/internal/git"
	"github.com/spawnmesh/spawnmesh/internal/scale"
	"github.com/spawnmesh/spawnmesh/spoke/worktree"
)

// Whatever is in a repository is in the working tree, and whatever an agent makes of that is with the operator, or told.
func TestWhatIsThereIsHeldOrTold(t *testing.T) {
	t.Parallel()
	seed := scale.Seed(t, "SPAWNMESH_TREES_SEED")
	for round := range scale.Larger(t, "SPAWNMESH_TREES", 6, 60) {
		heldOrTold(t, rand.New(rand.NewPCG(seed, uint64(round))))
	}
}

// An author makes files at random.
type author struct {
	t   *testing.T
	rnd *rand.Rand
	dir string
}

var someNames = []string{"a", "A", "b", "dir", "Dir", "x.o", "keep.o", "build", "n\nl", "t\tb", "\xff\xfe", "é", "e\u0301", " ", "-x", ".gitignore", ".gitattributes", "a b", "#", "!c", "~", "link", strings.Repeat("l", 200)}

// path is below the directory.
func (a *author) path() string {
	var path string
	for range 1 + a.rnd.IntN(3) {
		path = filepath.Join(path, someNames[a.rnd.IntN(len(someNames))])
	}
	return path
}

func (a *author) text() []byte {
	switch a.rnd.IntN(8) {
	case 0:
		return nil
	case 1:
		return []byte("line\r\nline\n$Id$\r\n")
	case 2:
		text := make([]byte, a.rnd.IntN(200_000))
		rand.NewChaCha8([32]byte{byte(a.rnd.IntN(255))}).Read(text)
		return text
	case 3:
		return []byte("*.o\nbuild\n!keep.o\n/dir/a\n")
	case 4:
		return []byte("* text=auto eol=crlf ident\n*.o filter=lfs working-tree-encoding=UTF-16\n")
	case 5:
		if a.rnd.IntN(8) == 0 {
			return make([]byte, 9<<20) // more than git holds in memory
		}
	}
	return fmt.Appendln(nil, a.rnd.IntN(20))
}

// edit does something to a tree; what cannot be done is not. Links lead out of the tree, and nothing is done there.
func (a *author) edit() {
	root, err := os.OpenRoot(a.dir)
	require.NoError(a.t, err)
	defer root.Close()
	path, other := a.path(), a.path()
	switch a.rnd.IntN(12) {
	case 0:
		_ = root.RemoveAll(path)
	case 1:
		_ = root.Rename(path, other)
	case 2:
		_ = root.Symlink([]string{"a", "/etc/passwd", "../../..", "dir", "\xff"}[a.rnd.IntN(5)], path)
	case 3:
		_ = root.MkdirAll(path, 0o755)
	case 4:
		_ = root.Chmod(path, []os.FileMode{0o755, 0o644, 0o600}[a.rnd.IntN(3)])
	case 5:
		_ = root.Link(path, other)
	default:
		_ = root.MkdirAll(filepath.Dir(path), 0o755)
		if info, err := root.Lstat(path); err != nil || info.Mode().IsRegular() {
			_ = root.WriteFile(path, a.text(), 0o644)
		}
	}
}

func heldOrTold(t *testing.T, rnd *rand.Rand) {
	t.Helper()
	k := begin(t, "git commit -q --allow-empty -m first")
	operator := &author{t, rnd, k.operator}
	for range rnd.IntN(60) {
		operator.edit()
	}
	sh(t, k.operator, "find . -name .gitattributes '(' -type d -o -size +1M ')' -prune -exec rm -rf {} +")
	sh(t, k.operator, "git -c core.autocrlf=false -c core.safecrlf=false commit -q --allow-empty -m x; echo '* -text -ident -filter -working-tree-encoding' > .git/info/attributes; git add -Af . && git commit -q --allow-empty -m second")
	k.again()
	require.Equal(t, listed(t, k.operator, "HEAD"), onDisk(t, k.work))

	tip := k.in.Tip
	for attempt := range 3 {
		agent := &author{t, rnd, k.work}
		if rnd.IntN(2) == 0 {
			sh(t, k.work, "mkdir -p nested && git init -q nested/r && echo n > nested/r/n; mkdir -p .git/hooks && printf '#!/bin/sh\nexit 1\n' > .git/hooks/post-commit && chmod +x .git/hooks/post-commit")
		}
		for range rnd.IntN(40) {
			agent.edit()
		}
		if rnd.IntN(2) == 0 {
			sh(t, k.work, "git add -A . 2>/dev/null || true; git commit -q --allow-empty -m agent")
			own, err := k.commits(tip)
			if !errors.Is(err, git.ErrBad) { // as of a directory .gitattributes
				require.NoError(t, err)
				tip = own
			}
		}
		for range rnd.IntN(20) {
			agent.edit()
		}
		left, err := k.repo.Collect(t.Context(), k.work, tip, attempt, by, worktree.Bounds{Files: 1 << 20, Bytes: 1 << 40, Listed: 1 << 20})
		require.NoError(t, err)
		k.compare(left)
		tip = left.Tip
		if tip != k.in.Tip {
			k.deliver(tip)
			require.Equal(t, listed(t, k.dir, tip), listed(t, k.operator, "spawnmesh/t1"))
		}
		k.work = k.checkout(tip)
	}
}

// compare finds each file of the working tree in the commit, or among what is missing; and no other file in the commit.
func (k *task) compare(left worktree.Left) {
	k.t.Helper()
	has, is := listed(k.t, k.dir, left.Tip), onDisk(k.t, k.work)
	told := map[string]worktree.Reason{}
	for _, m := range left.Missing {
		told[m.Path] = m.Reason
	}
	under := func(path string) bool {
		for at := range told {
			if path == at || path+"/" == at || strings.HasSuffix(at, "/") && strings.HasPrefix(path, at) {
				return told[at] != worktree.Rules && told[at] != worktree.Empty
			}
		}
		return false
	}
	for _, path := range slices.Sorted(maps.Keys(is)) {
		if has[path] != is[path] {
			require.True(k.t, under(path), "%q is %q, and %q in the commit", path, is[path], has[path])
		}
	}
	for path := range has {
		_, there := is[path]
		require.True(k.t, there || under(path), "%q is in the commit, and nowhere else", path)
	}
	if left.Lossless() {
		require.Equal(k.t, is, has)
	}
}
