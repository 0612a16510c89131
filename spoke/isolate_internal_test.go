package spoke

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/spoke/isolation"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
)

// What is left of an attempt is looked for by the user that it was given, also where its agent has removed the directories that say so.
func TestTheUserOfAnAttemptIsKnownWithoutItsDirectory(t *testing.T) {
	t.Parallel()
	s := &Spoke{isolates: isolation.Open(t.TempDir(), 0)}
	defer s.isolates.Close()
	given := supervisor.User{ID: 70_001}

	user, former, err := s.usersOf(&run{dir: filepath.Join(t.TempDir(), "gone"), user: given})

	require.NoError(t, err)
	require.Equal(t, given, user)
	require.Zero(t, former)
}
