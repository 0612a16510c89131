package federation

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/forge"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// A message that this host cannot judge now is left, and comes again, until it is over: then it is answered.
func TestWhatIsOverIsNotLeft(t *testing.T) {
	t.Parallel()
	keys, err := signing.CreateKeys(filepath.Join(t.TempDir(), "keys"))
	require.NoError(t, err)
	hub := &forge.Voice{Keys: keys, Peer: keys.InstanceID(), Conn: forge.NewID(), Epoch: 1}
	key := signing.PeerKey{ID: keys.Signing.KeyID(), Owner: keys.InstanceID(), Public: keys.Signing.Public()}
	p := &Peer{Verifying: store.Verifying{Verifier: signing.Verifier{Self: hub.Peer, Conn: hub.Conn, Epoch: 1, Keys: map[signing.KeyID]signing.PeerKey{key.ID: key}, Heads: &signing.Heads{}}}}
	refused := commands.Refuse(commands.BadPath, "no such directory")
	h := &Handler{Judge: func(_ context.Context, m *store.Incoming) *commands.Refused {
		m.Later = errors.New("too many open files")
		return refused
	}}
	x := &Exchange{role: &role{handlers: map[commands.Kind]*Handler{commands.SpawnKind: h}}, log: slog.New(slog.DiscardHandler)}
	for left, exp := range map[bool]time.Duration{true: time.Hour, false: -time.Second} { // no longer ago than clocks may differ
		m := hub.Seal(&commands.Spawn{Task: forge.NewID(), Runtime: commands.RuntimeNoop}, nil, func(h *signing.Header) {
			h.Iat, h.Exp = time.Now().Add(-time.Minute).UnixMilli(), time.Now().Add(exp).UnixMilli()
		})

		o := x.open(t.Context(), p, m.Envelope)

		require.NoError(t, o.rejected)
		require.Equal(t, left, o.later)
		require.Equal(t, !left, o.stored)
		require.Equal(t, refused, o.in.Refusal)
	}
}

// What a host cannot judge is no fault of its hub, however much of it there is: nobody is suspended, and nothing of it is stored.
func TestWhatCannotBeJudgedSuspendsNobody(t *testing.T) {
	t.Parallel()
	const orders = 30 // 20 that are refused suspend a connection
	p := storetest.NewPair(t)
	for range orders {
		p.Order(t, nil)
	}
	var judged atomic.Int64
	h := &Handler{Judge: func(_ context.Context, m *store.Incoming) *commands.Refused {
		judged.Add(1)
		m.Later = errors.New("too many open files")
		return commands.Refuse(commands.BadPath, "no such directory")
	}}
	keys, err := p.Spoke.DB.KeysOf(t.Context(), p.Spoke.Conn)
	require.NoError(t, err)
	x := newExchange(&Board{DB: p.Spoke.DB, Log: slog.New(slog.DiscardHandler)}, &Peer{Connection: p.Spoke.Conn, Verifying: keys},
		&role{handlers: map[commands.Kind]*Handler{commands.SpawnKind: h}}, empty{})

	require.NoError(t, x.take(t.Context(), p.Hub.Due(t)))

	require.EqualValues(t, orders, judged.Load())
	require.Equal(t, 1, p.Spoke.Count(t, `SELECT count(*) FROM connections WHERE state = 'active'`))
	require.Zero(t, p.Spoke.Count(t, `SELECT (SELECT count(*) FROM inbox) + (SELECT count(*) FROM audit WHERE action = 'message.refused')`))
}
