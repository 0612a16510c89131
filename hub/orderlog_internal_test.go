package hub

import (
	"io"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// A log that wants less costs nothing: no name is looked up, nothing is put together.
func TestALogThatWantsLessCostsNothing(t *testing.T) {
	h := &Hub{Log: slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelWarn}))} // without a board
	batch := []*store.Incoming{{Body: &commands.Result{Task: "t", StartedAt: 1, EndedAt: 2}}, {Body: &commands.Started{Task: "t"}}}
	given := []store.Ordered{{Task: "t", Spoke: "attic"}}

	allocations := testing.AllocsPerRun(1000, func() {
		h.sayMoved(t.Context(), batch)
		h.noteOrders(t.Context(), given)
	})

	require.Zero(t, allocations)
}
