package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store"
)

// What a comparison has opened again is sent also where the answer to its commit was lost,
// and it was given up: the next one finds nothing to open.
func TestWhatIsOpenAgainIsSentAfterALostAnswer(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	proxy := storetest.NewProxy(t, p.Hub.URL)
	lossy := storetest.OpenSide(t, proxy.URL, 1, 2, 1)
	conn := p.Hub.Conn.ID
	question(t, p.Hub, 2)
	c := lossy.DB.NewCursor(conn)
	require.Equal(t, []int64{1, 2}, numbers(t, c))
	require.NoError(t, lossy.DB.Confirm(t.Context(), p.Hub.Peer, commands.Numbers{Through: 2}))
	theirs := commands.Numbering{Stored: commands.Numbers{Through: 1}, Digest: &commands.History{}} // the spoke was restored, and lacks 2

	proxy.Lose(proxy.Commits() + 1)
	proxy.Away(true)
	ctx, done := context.WithTimeout(t.Context(), time.Second)
	defer done()
	_, err := lossy.DB.Compare(ctx, p.Hub.Peer, theirs, 0, 20)
	require.ErrorIs(t, err, store.ErrCommitUnknown)
	require.Contains(t, control.ProblemOf(err).Detail, "may have been done all the same")
	require.Equal(t, 1, p.Hub.Count(t, `SELECT count(*) FROM open_outbox`), "it was committed")
	proxy.Away(false)

	found, err := lossy.DB.Compare(t.Context(), p.Hub.Peer, theirs, 0, 20)
	require.NoError(t, err)
	require.True(t, found.Resend)
	c.Rewind()
	require.Equal(t, []int64{2}, numbers(t, c))
	found, err = lossy.DB.Compare(t.Context(), p.Hub.Peer, theirs, 0, 20)
	require.NoError(t, err)
	require.False(t, found.Resend, "once")
}

// A comparison that opens something itself sends what an earlier one may have opened, too: the
// next one has no reason to send it all once more.
func TestADoubtEndsWithTheNextSending(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	conn := p.Hub.Conn.ID
	question(t, p.Hub, 2)
	c := p.Hub.DB.NewCursor(conn)
	require.Equal(t, []int64{1, 2}, numbers(t, c))
	require.NoError(t, p.Hub.DB.Confirm(t.Context(), p.Hub.Peer, commands.Numbers{Through: 2}))
	lacking := commands.Numbering{Stored: commands.Numbers{Through: 1}, Digest: &commands.History{}}
	gone, end := context.WithCancel(t.Context())
	end()
	_, err := p.Hub.DB.Compare(gone, p.Hub.Peer, lacking, 0, 20)
	require.Error(t, err)
	require.NotErrorIs(t, err, store.ErrCommitUnknown)
	found, err := p.Hub.DB.Compare(t.Context(), p.Hub.Peer, lacking, 0, 20)
	require.NoError(t, err)
	require.Equal(t, 1, found.Reopened)
	require.True(t, found.Resend)

	found, err = p.Hub.DB.Compare(t.Context(), p.Hub.Peer, lacking, 0, 20)

	require.NoError(t, err)
	require.False(t, found.Resend)
}
