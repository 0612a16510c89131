package worktree_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/spoke/worktree"
)

// Rules that are too long, or too many together, are not read, and that is told: what they name is in the commit.
func TestRulesAreBounded(t *testing.T) {
	t.Parallel()
	k := begin(t, some)
	put := func(dir, text string) {
		require.NoError(t, os.MkdirAll(filepath.Join(k.work, dir), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(k.work, dir, ".gitignore"), []byte(text), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(k.work, dir, "named"), nil, 0o600))
	}
	put("line", "named\n"+strings.Repeat("[!a]", 1025)+"\n")
	put("short", "named\n"+strings.Repeat("[!a]", 1024)[1:]+"\n")
	deep := ""
	for range 12 { // of which eight have room
		deep += "d/"
		put(deep, "named\n"+strings.Repeat(strings.Repeat("[!a]", 1000)+"\n", 30))
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)

	left := k.collect(k.in.Tip)

	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(2<<30))
	require.EqualValues(t, 5, left.Counts[worktree.Rules], "%v", left.Missing)
	require.Contains(t, left.Missing, worktree.Missing{Path: "line/.gitignore", Reason: worktree.Rules})
	k.deliver(left.Tip)
	listing := listed(t, k.operator, left.Tip)
	require.Contains(t, listing, "line/named")
	require.NotContains(t, listing, "short/named")
}

// Commits that no reader here would hold are not taken, in words that say so; the files are.
func TestCommitsThatAreTooLargeAreNotTaken(t *testing.T) {
	t.Parallel()
	k := begin(t, some)
	sh(t, k.work, "echo x > x; git add x; head -c 1100000 /dev/zero | tr '\\0' m | git commit -qF -")

	_, err := k.commits(k.in.Tip)

	require.ErrorContains(t, err, "too large: it has a commit of 1100")
	require.True(t, k.collect(k.in.Tip).Made)
}
