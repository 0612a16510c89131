package federation_test

import (
	"bytes"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/internal/pgtest"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
)

// Without the numbers of a heartbeat its peer compares nothing, and no new link is agreed on. So it is logged where the database keeps
// telling none, once, and when it does again.
func TestHeartbeatsWithoutNumbersAreLogged(t *testing.T) {
	t.Parallel()
	hub := storetest.NewPair(t).Hub
	h := federation.NewHistoryForTest(hub.DB, hub.Conn, federation.Role{})
	var log bytes.Buffer
	h.LogTo(&log)
	hold, err := pgx.Connect(t.Context(), pgtest.Admin(hub.URL))
	require.NoError(t, err)
	_, err = hold.Exec(t.Context(), `BEGIN; LOCK TABLE sequences IN ACCESS EXCLUSIVE MODE`)
	require.NoError(t, err)
	for range 4 {
		require.Nil(t, h.Say(t.Context(), 1).Numbers)
	}
	require.Equal(t, 1, bytes.Count(log.Bytes(), []byte("level=WARN msg=\"heartbeats have no numbers")), log.String())
	require.NoError(t, hold.Close(t.Context()))

	require.NotNil(t, h.Say(t.Context(), 1).Numbers)

	require.Contains(t, log.String(), "heartbeats have numbers again")
}

// A peer without its database confirms nothing: it is sent nothing again until its heartbeats have numbers.
func TestNothingIsSentAgainToAPeerWithoutItsDatabase(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	hub, spoke := federation.NewHistoryForTest(p.Hub.DB, p.Hub.Conn, federation.Role{}), federation.NewHistoryForTest(p.Spoke.DB, p.Spoke.Conn, federation.Role{})
	beat := func() (numbers bool) {
		v := spoke.Say(t.Context(), 1)
		require.NoError(t, hub.Compare(t.Context(), p.Hub.Peer.Key, 1, v))
		return v.Numbers != nil
	}
	again := func() bool {
		at, err := hub.Relay(t.Context())
		require.NoError(t, err)
		return !at.IsZero()
	}
	require.True(t, beat())
	p.Order(t, nil)
	for range 2 { // the second one finds nothing more to read
		require.True(t, again())
	}
	require.Equal(t, []int64{1}, *hub.Sent)
	hold, err := pgx.Connect(t.Context(), pgtest.Admin(p.Spoke.URL))
	require.NoError(t, err)
	_, err = hold.Exec(t.Context(), `BEGIN; LOCK TABLE sequences IN ACCESS EXCLUSIVE MODE`)
	require.NoError(t, err)

	require.False(t, beat())
	require.False(t, again())
	require.NoError(t, hold.Close(t.Context()))
	require.True(t, beat())
	require.True(t, again())
}
