package federation_test

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store"
)

// A peer that is away and does not know the newest key has nothing looked at sooner: it is
// told, and what follows waits for its link.
func TestAnAbsentPeerWithoutTheNewKeyKeepsNobodyAwake(t *testing.T) {
	t.Parallel()
	lab := storetest.NewSide(t, 1, 2)
	conn, _ := joined(t, lab, 0, store.Active)
	board := federation.Board{DB: lab.DB, Log: slog.New(slog.DiscardHandler), Dir: t.TempDir(), Process: "test"}
	require.NoError(t, board.Start(t.Context()))
	t.Cleanup(board.Close)
	require.NoError(t, lab.DB.ChangeKey(t.Context(), store.KeyChange{Actor: "test"}))

	settled, err := federation.ReconcileForTest(t.Context(), &board)

	require.NoError(t, err)
	require.True(t, settled)
	require.Equal(t, 1, lab.Count(t, `SELECT count(*) FROM outbox WHERE conn = $1`, conn), "its keys wait for it")
}
