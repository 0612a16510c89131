package federation_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store"
)

// A lease that begins anew lets go on what its end has suspended, and nothing that somebody has said since: the connection is known here as
// it was when the heartbeat came.
func TestALeaseThatBeginsAnewUndoesNobodysWord(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		since string // by whom it is suspended meanwhile; "" = by nobody else
		state store.ConnState
		by    string
	}{
		"nobody":   {"", store.Active, "lease"},
		"a person": {"uid:0", store.Suspended, "uid:0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := storetest.NewPair(t).Spoke
			suspend := func(by string) store.Connection {
				c, err := s.DB.SetConnectionState(t.Context(), s.Conn.ID, store.Suspended, "not heard", by, nil)
				require.NoError(t, err)
				return c
			}
			known := suspend("lease")
			if tt.since != "" {
				suspend(tt.since)
			}

			require.NoError(t, federation.ResumeLeaseForTest(t.Context(), s.DB, known))

			require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM connections WHERE state = $1 AND state_by = $2`, string(tt.state), tt.by))
		})
	}
}

// Who compares by hand lets go on what used numbers have suspended, and nothing that somebody has said since: that is refused as it is.
func TestComparingByHandUndoesNobodysWord(t *testing.T) {
	t.Parallel()
	lab := storetest.NewSide(t, 1, 2)
	conn, _ := joined(t, lab, 0, store.Active)
	suspend := func(by string) {
		_, err := lab.DB.SetConnectionState(t.Context(), conn, store.Suspended, "so", by, nil)
		require.NoError(t, err)
	}
	suspend("numbers")
	board := federation.Board{DB: lab.DB, Log: slog.New(slog.DiscardHandler), Dir: t.TempDir(), Process: "test"}
	require.NoError(t, board.Start(t.Context()))
	t.Cleanup(board.Close)
	suspend("uid:0") // the board has read the table before
	ctx, done := context.WithTimeout(t.Context(), time.Minute)
	defer done()

	_, err := board.Resync(ctx, conn, "uid:1", store.Commands)

	require.Equal(t, commands.Conflict, commands.CodeOf(err), "%v", err)
	require.Equal(t, 1, lab.Count(t, `SELECT count(*) FROM connections WHERE state = 'suspended' AND state_by = 'uid:0'`))
}
