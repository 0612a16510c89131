package worktree_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/spoke/worktree"
)

// What an agent has named besides its branch is counted; what is no .git that git makes, or is more than anybody has, is told to be that, and
// nothing is followed, waited for or read to its end.
func TestNamesThatAnAgentHasMade(t *testing.T) {
	t.Parallel()
	k := begin(t, some)
	outside := t.TempDir()
	sh(t, outside, "git init -q r && cd r && git config user.name a && git config user.email a@example.org && git commit -q --allow-empty -m x && git branch theirs")
	deep := strings.Repeat("d/", 40)
	for name, tt := range map[string]struct {
		script string
		n      int
		bad    bool
	}{
		"none":                     {script: "true"},
		"branches":                 {script: "git branch a; git branch b/c", n: 2},
		"a tag":                    {script: "git tag t", n: 1},
		"packed":                   {script: "git branch a; git pack-refs --all", n: 1},
		"a stash":                  {script: "echo x >x; git add x; git stash -q", n: 1},
		"no .git":                  {script: "rm -rf .git", bad: true},
		"a file":                   {script: "rm -rf .git; echo gitdir: /etc >.git", bad: true},
		"a pipe":                   {script: "rm -rf .git; mkfifo .git", bad: true},
		"a link":                   {script: "rm -rf .git; ln -s " + outside + "/r/.git .git", bad: true},
		"refs by a link":           {script: "rm -rf .git/refs; ln -s " + outside + "/r/.git/refs .git/refs", bad: true},
		"packed-refs is a pipe":    {script: "mkfifo .git/packed-refs", bad: true},
		"packed-refs is a link":    {script: "ln -s /dev/zero .git/packed-refs", bad: true},
		"packed-refs without end":  {script: "truncate -s 1T .git/packed-refs", bad: true},
		"directories without end":  {script: "mkdir -p .git/refs/" + deep, bad: true},
		"more than anybody has":    {script: "cd .git/refs && seq 10001 | xargs mkdir", bad: true},
		"a pipe among the names":   {script: "mkfifo .git/refs/heads/p", n: 1},
		"a link among the names":   {script: "ln -s /dev/zero .git/refs/heads/l", n: 1},
		"a directory, by a link":   {script: "ln -s / .git/refs/heads/l", n: 1},
		"its own branch is a link": {script: "rm .git/refs/heads/spawnmesh/t; ln -s /dev/zero .git/refs/heads/spawnmesh/t", n: 1},
		"its own branch has more":  {script: "git commit -q --allow-empty -m more", n: 1},
		"its own branch, packed":   {script: "git commit -q --allow-empty -m more; git pack-refs --all; git checkout -q --detach HEAD~1", n: 1},
		"its own branch is gone":   {script: "git checkout -q --detach; git branch -D spawnmesh/t"},
		"its own branch is a pipe": {script: "rm .git/refs/heads/spawnmesh/t; mkfifo .git/refs/heads/spawnmesh/t", n: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			work := filepath.Join(t.TempDir(), strconv.Itoa(len(name)))
			require.NoError(t, os.Mkdir(work, 0o755))
			require.NoError(t, k.repo.Checkout(t.Context(), work, "t", k.in.Tip, room))
			sh(t, work, tt.script)

			n, err := k.repo.Untaken(t.Context(), work, "t", k.in.Tip)

			if tt.bad {
				require.Error(t, err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tt.n, n)
		})
	}
}

// HEAD of an agent is read as data, however it names its commit.
func TestTheHeadOfAnAgentIsRead(t *testing.T) {
	t.Parallel()
	k := begin(t, some)
	require.Equal(t, k.in.Tip, worktree.Head(k.work))
	sh(t, k.work, "git pack-refs --all")
	require.Equal(t, k.in.Tip, worktree.Head(k.work))
	sh(t, k.work, "git checkout -q --detach; git commit -q --allow-empty -m more")
	more := sh(t, k.work, "git rev-parse HEAD")
	require.Equal(t, more, worktree.Head(k.work))
	require.True(t, k.repo.Took(t.Context(), k.in.Origin, k.in.Tip))
	require.False(t, k.repo.Took(t.Context(), more, k.in.Tip))
	for _, script := range []string{"echo ref: refs/heads/none > .git/HEAD", "echo ref: refs/../HEAD > .git/HEAD", "rm .git/HEAD; mkfifo .git/HEAD", "rm .git/HEAD; ln -s /dev/zero .git/HEAD", "rm .git/HEAD; truncate -s 1T .git/HEAD", "rm -rf .git; ln -s " + k.dir + " .git"} {
		sh(t, k.work, script)
		require.Empty(t, worktree.Head(k.work), script)
		require.False(t, k.repo.Took(t.Context(), worktree.Head(k.work), k.in.Tip))
	}
}
