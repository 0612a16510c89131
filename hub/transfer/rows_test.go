package transfer_test

import (
	"io/fs"
	"strings"
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

// What is noted and not on the disk, as after a restore, is not held: its peer is to bring it again.
func TestWhatIsNotOnTheDiskIsNotHeld(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	blobs, err := blob.Open(t.TempDir())
	require.NoError(t, err)
	rows := transfer.Rows{DB: p.Hub.DB, Blobs: blobs, Most: 1000}
	conn, d := p.Hub.Conn.ID, blob.Of([]byte("x"))
	require.NoError(t, p.Hub.Exec(`INSERT INTO peer_work (conn, digest, task, size) VALUES ($1, $2, $3, 1)`, conn, d.String(), storetest.NewID()))
	require.ErrorIs(t, rows.Held(t.Context(), conn, d, 1), blob.ErrDamaged)
	mayPut := func() bool {
		size, held, err := rows.MayPut(t.Context(), conn, d)
		require.NoError(t, err)
		require.EqualValues(t, 1, size)
		return held
	}

	require.False(t, mayPut())

	_, _, err = blobs.Write(strings.NewReader("x"), 1)
	require.NoError(t, err)
	require.NoError(t, rows.Held(t.Context(), conn, d, 1))
	require.True(t, mayPut())
}
