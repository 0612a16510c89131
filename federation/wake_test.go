package federation_test

import (
	"bytes"
	"crypto/ed25519"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/federation/transport"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store"
)

// awake waits until b is told to read the table of connections. Nobody reads it here.
func awake(t *testing.T, b *federation.Board, why string) {
	t.Helper()
	select {
	case <-federation.WakeForTest(b):
	case <-time.After(20 * time.Second):
		require.FailNow(t, "the table is not read", why)
	}
}

// A connection may be changed by a command that another process runs: what that writes has
// the table read at once.
func TestWhatAnotherProcessWritesHasTheTableRead(t *testing.T) {
	t.Parallel()
	lab := storetest.NewSide(t, 1, 2)
	board := federation.Board{DB: lab.DB, Log: slog.New(slog.DiscardHandler), Dir: t.TempDir(), Process: "test", Quiet: time.Hour}
	require.NoError(t, board.Start(t.Context()))
	t.Cleanup(board.Close)
	go func() { _ = federation.WatchForTest(t.Context(), &board) }()
	awake(t, &board, "what came before the watcher listened was not heard")
	other := storetest.OpenSide(t, lab.URL, 1, 2, 2)

	require.NoError(t, other.DB.Audit(t.Context(), store.AuditRow{Actor: "test", Action: "test.write", Object: "x"}))

	awake(t, &board, "another process has written")
}

// Keys of this instance may wait for a peer to be linked.
func TestALinkThatComesHasTheTableRead(t *testing.T) {
	t.Parallel()
	lab, attic := storetest.NewSide(t, 1, 2), storetest.NewSide(t, 3, 4)
	cert, err := transport.Certificate(ed25519.NewKeyFromSeed(bytes.Repeat([]byte{9}, 32)))
	require.NoError(t, err)
	conn, seed := joined(t, lab, 0, store.Active)
	log := slog.New(slog.DiscardHandler)
	server := &transport.Hub{Listen: "127.0.0.1:0", Dir: t.TempDir(), Certificate: cert, Log: log}
	dialled := federation.Board{DB: lab.DB, Log: log, Dir: t.TempDir(), Process: "test", Server: server}
	require.NoError(t, dialled.Start(t.Context()))
	t.Cleanup(dialled.Close)
	board := federation.Board{DB: attic.DB, Log: log, Dir: t.TempDir(), Process: "test"}
	require.NoError(t, board.Start(t.Context()))
	t.Cleanup(board.Close)
	link := &transport.Link{Address: server.Addr(), Pins: []string{transport.Pin(cert)}, ID: conn, Seed: seed, Log: log, Changed: federation.ChangedLinkForTest(&board, conn)}

	go func() { _ = link.Run(t.Context()) }()

	awake(t, &board, "the link is up")
}
