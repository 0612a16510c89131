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
	"github.com/spawnmesh/spawnmesh/store"
)

// Links of two instances with one key that are noted while the connection is suspended say nothing new: a person
// who resumes has decided. Whoever comes back after that does.
func TestWhoResumesHasDecidedAboutAClone(t *testing.T) {
	t.Parallel()
	lab := storetest.NewSide(t, 1, 2)
	conn, _ := joined(t, lab, 0, store.Active)
	cert, err := transport.Certificate(ed25519.NewKeyFromSeed(bytes.Repeat([]byte{9}, 32)))
	require.NoError(t, err)
	log := slog.New(slog.DiscardHandler)
	server := &transport.Hub{Listen: "127.0.0.1:0", Dir: t.TempDir(), Certificate: cert, Log: log}
	board := federation.Board{DB: lab.DB, Log: log, Dir: t.TempDir(), Process: "test", Server: server}
	require.NoError(t, board.Start(t.Context()))
	t.Cleanup(board.Close)
	board.Serve(store.Commands, federation.Role{})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- board.Run(ctx) }()
	t.Cleanup(func() { stop(); require.NoError(t, <-ended) })
	require.Eventually(t, func() bool { return board.Exchange(conn) != nil }, time.Minute, 10*time.Millisecond)
	since := time.Now()
	links := func(incarnation string) {
		since = since.Add(time.Millisecond)
		server.NewLink(conn, incarnation, since)
	}
	becomes := func(want store.ConnState) {
		t.Helper()
		require.Eventually(t, func() bool {
			s, found := board.Status(conn)
			return found && s.State == want
		}, time.Minute, 10*time.Millisecond)
	}
	original, clone := storetest.NewID(), storetest.NewID()
	links(original)
	links(clone)
	links(original)
	becomes(store.Suspended)
	links(clone)
	links(original)

	_, err = board.SetState(t.Context(), conn, store.Active, "it was stopped", "ann")
	require.NoError(t, err)
	becomes(store.Active)
	links(original)
	require.Equal(t, 1, lab.Count(t, `SELECT count(*) FROM connections WHERE id = $1 AND state = 'active'`, conn))

	links(clone)
	links(original)
	becomes(store.Suspended)
	require.Equal(t, 2, lab.Count(t, `SELECT count(*) FROM audit WHERE conn = $1 AND action = 'connection.suspended' AND actor = 'clone'`, conn))
}
