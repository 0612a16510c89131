package federation_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store"
)

// A peer that was restored to before several changes of our key is told each set as soon as it has taken the one before, and none of them
// twice in an interval, whatever it says.
func TestAPeerIsToldTheNextLostKeySetAtOnce(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	const changes = 3
	for n := range int64(changes) {
		require.NoError(t, p.Hub.DB.ChangeKey(t.Context(), store.KeyChange{}))
		for range 2 { // it is told, and signs
			_, _, err := p.Hub.DB.TendKeys(t.Context())
			require.NoError(t, err)
			require.NoError(t, p.Hub.DB.Confirm(t.Context(), p.Hub.Peer, commands.Numbers{Through: n + 1}))
		}
	}
	require.Equal(t, changes, p.Hub.Count(t, `SELECT count(*) FROM outbox WHERE kind = 'peer.keyset'`))
	h := federation.NewHistoryForTest(p.Hub.DB, p.Hub.Conn, federation.Role{})
	has := func(n int64) {
		require.NoError(t, h.Hear(t.Context(), p.Hub.Peer.Key, 1, commands.Numbering{Stored: commands.Numbers{Through: n}, Digest: &commands.History{}}))
	}

	for n := range int64(changes) {
		for range 2 {
			has(n)
		}
	}
	has(0)
	has(changes)
	has(1)
	require.Equal(t, []int64{1, 2, 3}, *h.Sent)

	h.TellsLater() // it is restored to the same backup once more
	for n := range int64(changes) {
		has(n)
	}

	require.Equal(t, []int64{1, 2, 3, 1, 2, 3}, *h.Sent)
	require.False(t, h.StaysLost())
}
