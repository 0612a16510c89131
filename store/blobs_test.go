package store_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store"
)

func blobOf(n int64) commands.Blob {
	return commands.Blob{Digest: fmt.Sprintf("sha256-%064x", n), Size: n}
}

func (s scene) ordersWith(blobs ...commands.Blob) store.Ordered {
	o := s.spawn()
	o.Spawn.Runtime, o.Spawn.Argv = commands.RuntimeExec, []string{"true"}
	for i, b := range blobs {
		o.Spawn.Inputs = append(o.Spawn.Inputs, commands.Input{Kind: commands.InputFile, Blob: b, Path: fmt.Sprint(i)})
	}
	list, err := s.DB.OrderSpawns(s.Context(), []store.SpawnOrder{o})
	require.NoError(s, err)
	return list[0]
}

// An order is given only with inputs that its workspace was given, as they are; and its spoke alone may fetch them, while it has not ended.
func TestAnOrderNeedsItsInputs(t *testing.T) {
	t.Parallel()
	s := scene{t, storetest.NewSide(t, 1, 2)}.met(store.Commands)
	require.NoError(t, s.DB.KeepBlob(t.Context(), blobOf(7), "test"))
	require.NoError(t, s.Exec(`INSERT INTO blobs (digest, owner, size) VALUES ($1, $2, $3)`, blobOf(8).Digest, "ws/other", 8))
	larger := blobOf(7)
	larger.Size++
	for name, bad := range map[string]commands.Blob{"nobody's": blobOf(9), "another workspace's": blobOf(8), "of another size": larger} {
		o := s.ordersWith(blobOf(7), bad)
		require.NotNil(t, o.Err, name)
		require.Equal(t, commands.InputMissing, o.Err.Code, name)
		_, err := s.DB.InputFor(t.Context(), s.Conn.ID, blobOf(7).Digest)
		require.Equal(t, commands.NotFound, commands.CodeOf(err), name)
	}

	o := s.ordersWith(blobOf(7), blobOf(7))

	require.Nil(t, o.Err)
	size, err := s.DB.InputFor(t.Context(), s.Conn.ID, blobOf(7).Digest)
	require.NoError(t, err)
	require.EqualValues(t, 7, size)
	for _, not := range [][2]string{{storetest.NewID(), blobOf(7).Digest}, {s.Conn.ID, blobOf(8).Digest}} {
		_, err = s.DB.InputFor(t.Context(), not[0], not[1])
		require.Equal(t, commands.NotFound, commands.CodeOf(err))
	}
	require.NoError(t, s.Exec(`UPDATE mirrors SET state = 'failed', ended_at = now()`))
	_, err = s.DB.InputFor(t.Context(), s.Conn.ID, blobOf(7).Digest)
	require.Equal(t, commands.NotFound, commands.CodeOf(err), "it has ended")
}

// What nobody needs is forgotten after a while, with its bytes, and nothing else is.
func TestBlobsAreForgotten(t *testing.T) {
	t.Parallel()
	s := scene{t, storetest.NewSide(t, 1, 2)}.met(store.Commands)
	for _, n := range []int64{1, 2, 3} {
		require.NoError(t, s.DB.KeepBlob(t.Context(), blobOf(n), "test"))
	}
	require.NoError(t, s.Exec(`INSERT INTO blobs (digest, owner, size) VALUES ($1, $2, $3)`, blobOf(2).Digest, "ws/other", 2))
	require.Nil(t, s.ordersWith(blobOf(1)).Err)
	require.NoError(t, s.Exec(`UPDATE blobs SET at = at - interval '2 days' WHERE owner = 'ws/main'`))
	forget := func() (gone []string) {
		n, err := s.DB.ForgetBlobs(t.Context(), 24*time.Hour, func(digest string) error { gone = append(gone, digest); return nil })
		require.NoError(t, err)
		require.Len(t, gone, n)
		return gone
	}
	failing := errors.New("the disk is gone")
	_, err := s.DB.ForgetBlobs(t.Context(), 24*time.Hour, func(string) error { return failing })
	require.ErrorIs(t, err, failing)

	require.Equal(t, []string{blobOf(3).Digest}, forget(), "what another workspace has stays")
	require.Equal(t, commands.InputMissing, s.ordersWith(blobOf(2)).Err.Code, "and is none of this one's any more")
	require.Empty(t, forget())

	require.NoError(t, s.Exec(`DELETE FROM mirrors`))
	_, err = s.DB.Prune(t.Context(), 0, time.Second)
	require.NoError(t, err)
	require.NoError(t, s.Exec(`UPDATE blobs SET at = at - interval '2 days'`))
	require.ElementsMatch(t, []string{blobOf(1).Digest, blobOf(2).Digest}, forget())
}

// Whoever orders a blob at the moment at which it is to be forgotten has it, or is told that it is missing.
func TestABlobThatIsOrderedIsNotForgotten(t *testing.T) {
	t.Parallel()
	s := scene{t, storetest.NewSide(t, 1, 2)}.met(store.Commands)
	require.NoError(t, s.DB.KeepBlob(t.Context(), blobOf(1), "test"))
	require.NoError(t, s.Exec(`UPDATE blobs SET at = at - interval '2 days'`))
	ordered := make(chan store.Ordered, 1)
	n, err := s.DB.ForgetBlobs(t.Context(), 24*time.Hour, func(string) error {
		go func() { ordered <- s.ordersWith(blobOf(1)) }()
		return context.Cause(t.Context())
	})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	o := <-ordered
	require.NotNil(t, o.Err)
	require.Equal(t, commands.InputMissing, o.Err.Code)
}
