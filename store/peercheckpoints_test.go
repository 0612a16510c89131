package store_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/audittree"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store"
)

// What is kept of a peer only ever goes on; the first note of an era that does not is evidence, and is said once.
func TestAKeptCheckpointOnlyGoesOn(t *testing.T) {
	t.Parallel()
	peer, s := storetest.NewSide(t, 7, 8), storetest.NewSide(t, 1, 2)
	s.Meet(t, store.Obeys)
	require.Equal(t, peer.Self(), s.Conn.Peer)
	var shown []store.Checkpoint
	for range 4 {
		audit(t, peer, 3)
		shown = append(shown, checkpoint(t, peer))
	}
	keep := func(c store.Checkpoint, proof []audittree.Hash) (bool, string) {
		news, err := s.DB.KeepCheckpoint(t.Context(), s.Conn, c, proof)
		return news, string(commands.CodeOf(err))
	}
	prove := func(from, to store.Checkpoint) []audittree.Hash {
		proof, err := peer.DB.ProveAudit(t.Context(), from.Size, to.Size)
		require.NoError(t, err)
		return proof
	}
	_, code := keep(shown[1], nil)
	require.Empty(t, code, "the first one is taken as it is")
	_, code = keep(shown[1], nil)
	require.Empty(t, code, "the same again")
	_, code = keep(shown[2], prove(shown[1], shown[2]))
	require.Empty(t, code)
	broken := string(commands.AuditBroken)
	news, code := keep(shown[3], prove(shown[1], shown[3]))
	require.True(t, news)
	require.Equal(t, broken, code, "another proof")
	news, err := s.DB.KeepCheckpoint(t.Context(), s.Conn, shown[0], nil)
	require.False(t, news, "it was said")
	require.ErrorContains(t, err, fmt.Sprintf("the audit of the peer has %d rows, and had %d", shown[0].Size, shown[2].Size))

	list, err := s.DB.PeerCheckpoints(t.Context(), s.Conn.ID)
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Equal(t, shown[2].Note, list[0].Note)
	require.Equal(t, shown[3].Note, list[0].Refused)
	anew := shown[0]
	anew.Era = 7
	anew.Note, err = anew.Sign(peer.Identity)
	require.NoError(t, err)
	_, code = keep(anew, nil)
	require.Empty(t, code, "it was restored")
	_, code = keep(shown[1], prove(shown[0], shown[1]))
	require.Equal(t, broken, code, "the life before does not come back")
	list, err = s.DB.PeerCheckpoints(t.Context(), "")
	require.NoError(t, err)
	require.Equal(t, []int64{7, 0}, []int64{list[0].Era, list[1].Era})

	for range 100 {
		anew.Era++
		anew.Note, err = anew.Sign(peer.Identity)
		require.NoError(t, err)
		_, code = keep(anew, nil)
	}
	require.Equal(t, broken, code, "an audit begins anew a bounded number of times")
	require.Equal(t, 100, s.Count(t, `SELECT count(*) FROM peer_checkpoints`))
}
