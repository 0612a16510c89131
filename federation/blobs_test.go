package federation_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/federation/transport"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// runs runs a board until the test ends.
func runs(t *testing.T, b *federation.Board) {
	t.Helper()
	require.NoError(t, b.Start(t.Context()))
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
		b.Close()
	})
}

// A spoke may carry blobs while its connection is active on both sides: a suspension of either ends that at once.
func TestBlobsGoWithTheConnection(t *testing.T) {
	t.Parallel()
	lab, attic := storetest.NewSide(t, 1, 2), storetest.NewSide(t, 3, 4)
	cert, err := transport.Certificate(ed25519.NewKeyFromSeed(bytes.Repeat([]byte{9}, 32)))
	require.NoError(t, err)
	seed := bytes.Repeat([]byte{60}, 32)
	nkey, err := transport.NKey(seed)
	require.NoError(t, err)
	server := &transport.Hub{Listen: "127.0.0.1:0", Dir: t.TempDir(), Certificate: cert}
	hub := &federation.Board{DB: lab.DB, Keys: signing.Keys{Identity: lab.Identity, Signing: lab.Signing}, Log: slog.New(slog.DiscardHandler), Dir: t.TempDir(), Process: "lab", Server: server}
	hub.Serve(store.Commands, federation.Role{Blobs: func(_ context.Context, conn string, f transport.BlobFrame) transport.BlobFrame {
		a := f.Answer(transport.BlobGoesOn)
		a.Data = []byte(conn)[:f.Want]
		return a
	}})
	conn := storetest.NewID()
	add := func(side, peer *storetest.Side, c store.Connection) {
		c.ID, c.Peer, c.State, c.LinkKey = conn, peer.Self(), store.Active, nkey
		_, err := side.DB.AddConnection(t.Context(), store.NewConnection{Connection: c, Grant: storetest.Terms, Actor: "test",
			Keys: store.PeerKeys{Identity: peer.Identity.Public(), Signing: peer.Signing.Public(), Sealing: peer.Sealing.Public()}})
		require.NoError(t, err)
	}
	add(lab, attic, store.Connection{Name: "attic", Authority: store.Commands})
	runs(t, hub)
	add(attic, lab, store.Connection{Name: "lab", Authority: store.Obeys, LinkURL: server.Addr(), LinkPin: transport.Pin(cert)})
	spoke := &federation.Board{DB: attic.DB, Keys: signing.Keys{Identity: attic.Identity, Signing: attic.Signing, LinkSeed: seed}, Log: slog.New(slog.DiscardHandler), Dir: t.TempDir(), Process: "attic"}
	spoke.Serve(store.Obeys, federation.Role{Lease: func() time.Duration { return time.Hour }})
	runs(t, spoke)

	opened := func() (c *transport.BlobConn) {
		require.Eventually(t, func() bool {
			var err error
			c, err = spoke.Blobs(t.Context(), conn)
			return err == nil
		}, 20*time.Second, 10*time.Millisecond)
		return c
	}
	gone := func(c *transport.BlobConn) {
		select {
		case <-c.Gone():
		case <-time.After(20 * time.Second):
			require.FailNow(t, "the connection for blobs is still there")
		}
	}
	c := opened()
	call, err := c.Send(transport.BlobFrame{Size: 36, Want: 36})
	require.NoError(t, err)
	f, err := call.Await(t.Context())
	require.NoError(t, err)
	require.Equal(t, conn, string(f.Data))

	for _, board := range []*federation.Board{spoke, hub} {
		change := func(verb string) {
			name := map[*federation.Board]string{spoke: "lab", hub: "attic"}[board]
			_, err := board.Change(t.Context(), name, federation.Change{Verb: verb, Reason: "a test", Actor: "test"}, store.Commands, store.Obeys)
			require.NoError(t, err)
		}
		change("suspend")
		gone(c)
		_, err = spoke.Blobs(t.Context(), conn)
		require.Error(t, err)
		change("resume")
		c = opened()
	}
	c.Close()
	_, err = spoke.Blobs(t.Context(), storetest.NewID())
	require.ErrorIs(t, err, transport.ErrUnavailable)
	_, err = hub.Blobs(t.Context(), conn)
	require.ErrorContains(t, err, "attic is no hub of this instance")
}
