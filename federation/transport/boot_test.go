package transport

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
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

// lateServer refuses its first connection, and answers the second one only after a while.
type lateServer struct {
	nats.InProcessConnProvider
	after time.Duration
	asked atomic.Int32
}

func (s *lateServer) InProcessConn() (net.Conn, error) {
	switch s.asked.Add(1) {
	case 1:
		return nil, errors.New("failed to create connection")
	case 2:
	default:
		return s.InProcessConnProvider.InProcessConn()
	}
	far, near := net.Pipe()
	time.AfterFunc(s.after, func() {
		conn, err := s.InProcessConnProvider.InProcessConn()
		if err != nil {
			far.Close()
			return
		}
		go func() { _, _ = io.Copy(conn, far); conn.Close() }()
		_, _ = io.Copy(far, conn)
		far.Close()
	})
	return near, nil
}

// On a busy host a server answers the connections of its own process late: a start waits.
func TestAStartWaitsForAServerThatAnswersLate(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil)
	busy := &Hub{Log: h.Log}
	busy.prepare()
	busy.gate = h.gate
	t.Cleanup(busy.disconnectAll)
	late := &lateServer{InProcessConnProvider: h.srv, after: nats.DefaultTimeout + 500*time.Millisecond}

	err := busy.openConns(t.Context(), late)

	require.NoError(t, err)
	require.EqualValues(t, 5, late.asked.Load(), "one was refused, and the next one was waited for")
	require.NotNil(t, busy.joins.get())
}

// A start ends with its context, and says what it was doing.
func TestAStartEndsWithItsContext(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil)
	busy := &Hub{Log: h.Log}
	busy.prepare()
	busy.gate = h.gate
	t.Cleanup(busy.disconnectAll)
	ctx, done := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer done()

	err := busy.openConns(ctx, deadServer{})

	require.ErrorContains(t, err, "connecting to the message server inside this process for messages")
	require.ErrorContains(t, err, "failed to create connection")
}

type deadServer struct{}

func (deadServer) InProcessConn() (net.Conn, error) {
	return nil, errors.New("failed to create connection")
}

// disconnectAll ends the connections of a hub that shares the gate of another one.
func (h *Hub) disconnectAll() {
	for _, stop := range h.stops {
		stop()
	}
}
