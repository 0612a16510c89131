package spoke_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/internal/blob"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/spoke/transfer"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// What nobody waits for any more ends nothing, and may be told twice.
func TestBlobsThatNobodyWaitsFor(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	rows := &transfer.Rows{Hubs: func() map[string]string { return map[string]string{p.Spoke.Conn.ID: "1"} }, Backlog: backlog.Open(p.Spoke.DB, func(context.Context, *store.Tx, []backlog.Moved) error { return nil }), Ended: func(tasks []string) { t.Error("ended", tasks) }}
	list, err := rows.Wanted(t.Context())
	require.NoError(t, err)
	require.Empty(t, list)
	for _, put := range []bool{false, true} {
		b := transfer.Blob{Conn: p.Spoke.Conn.ID, Digest: blob.Of(nil), Put: put}
		require.NoError(t, rows.Done(t.Context(), b))
		require.NoError(t, rows.Failed(t.Context(), b, blob.ErrDamaged))
	}
}
