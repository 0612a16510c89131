package isolation

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A user that is none of the instance's now may have been an agent's, unless somebody else is known to have it.
func TestAFormerUserMayBeAnAgents(t *testing.T) {
	t.Parallel()
	if !asRoot(t) {
		return
	}
	i, free, other := withUsers(t, t.TempDir(), 0), freeRange(t), t.TempDir()
	home := t.TempDir()
	owned := func(id int64) int64 {
		require.NoError(t, os.Lchown(home, int(id), int(id)))
		return i.Former(Dirs{Home: home})
	}

	require.Zero(t, owned(0))
	require.Zero(t, owned(i.users.first+1), "it is its own")
	require.Zero(t, owned(1), "it has a name")
	require.Equal(t, free+5, owned(free+5))
	theirs := withUsers(t, other, free)
	require.Zero(t, owned(free+5), "another instance has it")
	require.NoError(t, theirs.Close())
	require.Zero(t, owned(free+5), "also while it is down")
	require.Equal(t, free+rangeUsers, owned(free+rangeUsers), "the range has an end")
	require.NoError(t, os.WriteFile(claimFile(free), []byte(filepath.Clean(i.dir)), 0o600))
	require.Equal(t, free+5, owned(free+5), "the range was its own")
	require.Zero(t, i.Former(Dirs{Home: filepath.Join(home, "nosuch")}))
}
