package federation

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/store"
)

// A peer that changes its state again and again is noted every three seconds at most.
func TestHowOftenTheStateOfAPeerIsNoted(t *testing.T) {
	t.Parallel()
	at := time.Now()
	active, suspended := store.PeerState{State: store.Active}, store.PeerState{State: store.Suspended}
	x := &Exchange{peerState: active, peerStateAt: at}
	for name, tt := range map[string]struct {
		says store.PeerState
		ago  time.Duration
		note bool
	}{
		"the same":        {active, time.Hour, false},
		"another":         {suspended, peerStatePause, true},
		"another so soon": {suspended, peerStatePause - time.Millisecond, false},
		"another reason":  {store.PeerState{State: store.Active, Reason: "x"}, time.Hour, true},
	} {
		require.Equal(t, tt.note, x.newPeerState(tt.says, at.Add(tt.ago)), name)
	}
	require.True(t, (&Exchange{}).newPeerState(active, at), "the first one")
}

// A peer is told for a week that a connection has ended that this side dialled.
func TestHowLongAnEndIsTold(t *testing.T) {
	t.Parallel()
	const week, slack = 7 * 24 * time.Hour, time.Minute
	ended := func(ago time.Duration, change func(*store.Connection)) store.Connection {
		c := store.Connection{State: store.Revoked, Authority: store.Obeys, By: "ann", Since: time.Now().Add(-ago)}
		if change != nil {
			change(&c)
		}
		return c
	}
	for name, tt := range map[string]struct {
		c    store.Connection
		told bool
	}{
		"just now":       {ended(0, nil), true},
		"for a week":     {ended(week-slack, nil), true},
		"no longer":      {ended(week+slack, nil), false},
		"it has not":     {ended(0, func(c *store.Connection) { c.State = store.Active }), false},
		"the peer dials": {ended(0, func(c *store.Connection) { c.Authority = store.Commands }), false},
		"by the peer":    {ended(0, func(c *store.Connection) { c.By = byPeer }), false},
		"it knows":       {ended(0, func(c *store.Connection) { c.EndTold = true }), false},
	} {
		require.Equal(t, tt.told, MayHaveToTell(tt.c), name)
	}
}
