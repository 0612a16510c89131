package transport

import (
	"context"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
)

// onLog calls then for every line that is logged, before whoever logs goes on.
type onLog struct {
	slog.Handler
	then func(message string)
}

func (l onLog) Handle(ctx context.Context, r slog.Record) error {
	l.then(r.Message)
	return l.Handler.Handle(ctx, r)
}

// A hub listens before its queues are there. Whoever dials then, or was not
// admitted to this hub, is refused; nobody finds its queue missing.
func TestADialWhileTheHubBootsIsRefused(t *testing.T) {
	t.Parallel()
	join := func(h *Hub) { h.JoinUser = anybody }
	first := startHub(t, join)
	admit(t, first, "attic", "suspended")
	first.Close()
	address := first.Addr()
	dial := func(h *Hub, name string) error {
		k := &Link{Address: address, Pins: []string{Pin(h.Certificate)}, ID: name, Seed: seed(name)}
		connect, err := k.dialer()
		require.NoError(t, err)
		l, err := connect(t.Context())
		l.close()
		return err
	}
	dialled := map[string][]error{}

	second := startHub(t, func(h *Hub) {
		join(h)
		h.Dir, h.Listen = first.Dir, address
		h.Log = slog.New(onLog{h.Log.Handler(), func(message string) {
			if message == "setting up the queues" || message == "letting peers in" {
				_, err := DialJoin(t.Context(), address, []string{Pin(h.Certificate)}, as("ABCDEFGHIJKLMNOPQRST"))
				dialled[message] = []error{dial(h, "attic"), dial(h, "suspended"), err}
			}
		}})
		admit(t, h, "attic")
	})

	require.Len(t, dialled, 2)
	for when, errs := range dialled {
		for _, err := range errs {
			require.ErrorIs(t, err, ErrRefused, when)
		}
	}
	require.NoError(t, dial(second, "attic"))
	require.ErrorIs(t, dial(second, "suspended"), ErrRefused)
}

// A server lets a stream have a thousand consumers unless it is told otherwise.
func TestAHubHasLanesForThousandsOfPeers(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil)

	for _, conn := range ids("peer", 1001) {
		_, err := h.main.get().js.CreateOrUpdateConsumer(t.Context(), streamCommands, commandConsumer(conn, commands.QueueRun))
		require.NoError(t, err)
	}
}
