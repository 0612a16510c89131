package spoke

import (
	"io"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// A log that wants less costs nothing: no name is looked up, nothing is put together.
func TestALogThatWantsLessCostsNothing(t *testing.T) {
	s := &Spoke{Log: slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelWarn}))} // without a board
	batch := []*store.Incoming{{Body: &commands.Spawn{Task: "t"}}, {Body: &commands.Kill{Task: "t"}}}
	end := backlog.End{Outcome: commands.Succeeded}

	allocations := testing.AllocsPerRun(1000, func() {
		s.sayTaken(t.Context(), batch)
		s.sayEnd(t.Context(), &run{}, end, true)
	})

	require.Zero(t, allocations)
}
