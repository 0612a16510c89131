package spoke

import (
	"bytes"
	"io"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// The log says what was asked for, where orders of one kind ask for different things.
func TestTheLogSaysWhatAnOrderAsksFor(t *testing.T) {
	t.Parallel()
	for want, body := range map[string]commands.Body{
		"kind=agent.pause as=pause id=t":  &commands.Pause{Task: "t", Paused: true},
		"kind=agent.pause as=resume id=t": &commands.Pause{Task: "t"},
		"kind=agent.kill as=kill id=t":    &commands.Kill{Task: "t"},
		"kind=agent.kill as=cancel id=t":  &commands.Kill{Task: "t", Cancel: commands.CancelNow},
		"kind=agent.spawn id=t":           &commands.Spawn{Task: "t"},
	} {
		var out bytes.Buffer
		s := &Spoke{Log: slog.New(slog.NewTextHandler(&out, nil)), board: &federation.Board{}}
		for _, code := range []signing.Code{"", signing.SeqReuse} {
			s.sayTaken(t.Context(), []*store.Incoming{{Header: signing.Header{Kind: string(body.Kind())}, Body: body, Code: code}})
		}
		require.Contains(t, out.String(), `msg="order taken" `+want)
		require.Contains(t, out.String(), `msg="order refused" `+want)
	}
}

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
