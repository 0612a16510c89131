package federation_test

import (
	"bytes"
	"crypto/ed25519"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/federation/transport"
	"github.com/spawnmesh/spawnmesh/internal/pgtest"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// A board that starts lets in who is active, and nobody else for a moment either:
// nothing here cuts what should not have come in.
func TestABoardThatStartsLetsInOnlyWhoIsActive(t *testing.T) {
	t.Parallel()
	lab := storetest.NewSide(t, 1, 2)
	links := map[store.ConnState]*transport.Link{}
	cert, err := transport.Certificate(ed25519.NewKeyFromSeed(bytes.Repeat([]byte{9}, 32)))
	require.NoError(t, err)
	log := slog.New(slog.DiscardHandler)
	for i, state := range []store.ConnState{store.Active, store.Suspended, store.Pending, store.Disconnected} {
		conn, seed := joined(t, lab, i, state)
		links[state] = &transport.Link{Pins: []string{transport.Pin(cert)}, ID: conn, Seed: seed, Redial: 100 * time.Millisecond, Log: log}
	}
	server := &transport.Hub{Listen: "127.0.0.1:0", Dir: t.TempDir(), Certificate: cert, Log: log}
	board := federation.Board{DB: lab.DB, Log: log, Dir: t.TempDir(), Process: "test", Server: server}

	require.NoError(t, board.Start(t.Context()))
	t.Cleanup(board.Close)

	for state, link := range links {
		link.Address = server.Addr()
		decided := make(chan transport.LinkState, 1)
		link.Changed = func(s transport.LinkState) {
			select {
			case decided <- s:
			default:
			}
		}
		go func() { _ = link.Run(t.Context()) }()
		first := <-decided
		require.Equal(t, state == store.Active, first.Up, "%s: %v", state, first.Cause)
		if state != store.Active {
			require.ErrorIs(t, first.Cause, transport.ErrRefused, state)
		}
	}
}

// joined adds the ith peer that dials lab, and returns the connection and the seed of its link key.
func joined(t *testing.T, lab *storetest.Side, i int, state store.ConnState) (conn string, seed []byte) {
	t.Helper()
	peer, seed := storetest.Signer(t, byte(20+i)), bytes.Repeat([]byte{byte(60 + i)}, 32)
	nkey, err := transport.NKey(seed)
	require.NoError(t, err)
	c, err := lab.DB.AddConnection(t.Context(), store.NewConnection{Grant: storetest.Terms, Actor: "test",
		Connection: store.Connection{ID: storetest.NewID(), Peer: signing.InstanceIDOf(peer.Public()), Name: fmt.Sprintf("attic-%d", i), Authority: store.Commands, State: state, LinkKey: nkey},
		Keys:       store.PeerKeys{Identity: peer.Public(), Signing: storetest.Signer(t, byte(40+i)).Public(), Sealing: seed}})
	require.NoError(t, err)
	return c.ID, seed
}
