package transfer_test

import (
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/hub/transfer"
	"github.com/spawnmesh/spawnmesh/internal/blob"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
)

// What no order and no result of a connection names is not there for it, in the words that a desk knows.
func TestRowsThatAreNotThere(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	blobs, err := blob.Open(t.TempDir())
	require.NoError(t, err)
	rows := transfer.Rows{DB: p.Hub.DB, Blobs: blobs, Most: 1000}
	d := blob.Of([]byte("x"))

	_, err = rows.MayGet(t.Context(), p.Hub.Conn.ID, d)
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, _, err = rows.MayPut(t.Context(), p.Hub.Conn.ID, d)
	require.ErrorIs(t, err, fs.ErrNotExist)
}
