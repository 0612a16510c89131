package hub

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/wait"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// Who waits for the end of a task does not look at it when it begins.
func TestWhatBeginsWakesNobodyWhoWaitsForTheEnd(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		body commands.Body
		end  bool // who waits for the end looks
	}{
		"accepted": {&commands.Accepted{Task: "a"}, false},
		"started":  {&commands.Started{Task: "a"}, false},
		"result":   {&commands.Result{Task: "a"}, true},
		"killed":   {&commands.Killed{Task: "a"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &Hub{Log: slog.New(slog.DiscardHandler)}
			h.watch.byTask = map[string]map[wait.Signal]bool{}
			news, end, other := h.watch.add("a", false), h.watch.add("a", true), h.watch.add("b", false)

			h.moved(t.Context(), []*store.Incoming{{Header: signing.Header{Kind: string(c.body.Kind())}, Body: c.body}})

			require.Len(t, news, 1)
			require.Equal(t, c.end, len(end) == 1)
			require.Empty(t, other)
		})
	}
}
