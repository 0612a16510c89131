package store_test

import (
	"fmt"
	"strings"
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
		gone, err := s.DB.ForgetBlobs(t.Context(), 24*time.Hour)
		require.NoError(t, err)
		unknown, err := s.DB.Unknown(t.Context(), gone)
		require.NoError(t, err)
		require.ElementsMatch(t, gone, unknown)
		return gone
	}

	require.Equal(t, []string{blobOf(3).Digest}, forget(), "what another workspace has stays")
	require.Equal(t, commands.InputMissing, s.ordersWith(blobOf(2)).Err.Code, "and is none of this one's any more")
	require.Empty(t, forget())

	require.NoError(t, s.Exec(`DELETE FROM mirrors`))
	_, err := s.DB.Prune(t.Context(), 0, time.Second)
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
	forgotten := make(chan []string, 1)
	go func() { ordered <- s.ordersWith(blobOf(1)) }()
	go func() {
		gone, err := s.DB.ForgetBlobs(t.Context(), 24*time.Hour)
		if err != nil {
			t.Error(err)
		}
		forgotten <- gone
	}()

	o, gone := <-ordered, <-forgotten

	require.Equal(t, len(gone) == 1, o.Err != nil)
}

// A part is wanted of a peer whose result names it, until it has come, and as long as the peer is one.
func TestPartsThatNobodyWants(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	conn := p.Hub.Conn.ID
	bundle := &commands.Bundle{Blob: blobOf(100), Base: strings.Repeat("1", 40), Tip: strings.Repeat("2", 40), Commits: 1}
	task := p.Order(t, nil)
	takenIn(t, p, reports(t, p, task, &commands.Result{Task: task, State: commands.Completed, Attempt: 1, Outcome: commands.Succeeded, Bundle: bundle})...)
	wanted, other := store.Part{Conn: conn, Digest: blobOf(100).Digest}, store.Part{Conn: conn, Digest: blobOf(1).Digest}
	strange := store.Part{Conn: storetest.NewID(), Digest: blobOf(100).Digest}
	unwanted := func() []store.Part {
		list, err := p.Hub.DB.Unwanted(t.Context(), []store.Part{wanted, other, strange})
		require.NoError(t, err)
		return list
	}
	require.ElementsMatch(t, []store.Part{other, strange}, unwanted())
	require.NoError(t, p.Hub.DB.WorkCame(t.Context(), conn, bundle.Blob))
	require.ElementsMatch(t, []store.Part{wanted, other, strange}, unwanted())
}
