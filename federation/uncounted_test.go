package federation_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/internal/pgtest"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store"
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

// A queue that has no room for orders holds up no other, however many orders wait. When it has room they go out in their order.
func TestAFullQueueHoldsUpNoKill(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	hub, spoke := federation.NewHistoryForTest(p.Hub.DB, p.Hub.Conn, federation.Role{}), federation.NewHistoryForTest(p.Spoke.DB, p.Spoke.Conn, federation.Role{})
	require.NoError(t, hub.Compare(t.Context(), p.Hub.Peer.Key, 1, spoke.Say(t.Context(), 1)))
	const orders = store.RelayBatch + 10
	var id string
	for range orders {
		id = p.Order(t, nil)
	}
	_, err := p.Hub.DB.OrderKill(t.Context(), commands.Kill{Task: id, Reason: "enough", GraceMS: 1000}, time.Hour, "test")
	require.NoError(t, err)
	*hub.Full = true

	for range 4 {
		_, err := hub.Relay(t.Context())
		require.NoError(t, err)
	}

	require.Equal(t, []int64{orders + 1}, *hub.Sent)
	*hub.Full = false
	time.Sleep(5 * time.Second) // it is tried again
	for range 4 {
		_, err := hub.Relay(t.Context())
		require.NoError(t, err)
	}
	require.Equal(t, []int64{1, 2, 3}, (*hub.Sent)[1:4])
	require.Contains(t, *hub.Sent, int64(orders))
}

// What was not repeated to a peer that has suspended the connection comes when it has resumed it.
func TestOrdersAreRepeatedToWhoReadsThemAgain(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	hub, spoke := federation.NewHistoryForTest(p.Hub.DB, p.Hub.Conn, federation.Role{}), federation.NewHistoryForTest(p.Spoke.DB, p.Spoke.Conn, federation.Role{})
	says := func(state store.ConnState) {
		v := spoke.Say(t.Context(), 1)
		v.State = string(state)
		require.NoError(t, hub.Compare(t.Context(), p.Hub.Peer.Key, 1, v))
		_, err := hub.Relay(t.Context())
		require.NoError(t, err)
	}
	p.Order(t, nil)
	says(store.Active)
	require.Equal(t, []int64{1}, *hub.Sent)
	require.NoError(t, p.Hub.Exec(`UPDATE outbox SET created_at = created_at - interval '1 hour'`))

	says(store.Suspended)
	require.Equal(t, []int64{1}, *hub.Sent)
	says(store.Active)

	require.Equal(t, []int64{1, 1}, *hub.Sent)
}
