package transport

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// present runs Presence and waits until it listens.
func present(t testing.TB, h *Hub, handle func(ctx context.Context, conn string, body []byte) []byte) {
	t.Helper()
	run(t, func(ctx context.Context) error { return h.Presence(ctx, handle) })
	eventually(t, func() bool { return h.beats.get() != nil && h.beats.get().nc.NumSubscriptions() > 0 }, "somebody to listen")
	require.NoError(t, h.beats.get().nc.Flush())
}

func TestAHeartbeatIsAnswered(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil)
	admit(t, h, "attic", "lab")
	attic, lab := startLink(t, h, "attic"), startLink(t, h, "lab")
	present(t, h, func(_ context.Context, conn string, body []byte) []byte {
		return fmt.Appendf(nil, "%s said %s", conn, body)
	})

	fromAttic, err := attic.Beat(t.Context(), []byte("hello"))
	require.NoError(t, err)
	fromLab, err := lab.Beat(t.Context(), []byte("good day"))
	require.NoError(t, err)

	require.Equal(t, []string{"attic said hello", "lab said good day"}, []string{string(fromAttic), string(fromLab)})
	_, err = attic.Beat(t.Context(), make([]byte, maxBeat))
	require.ErrorContains(t, err, "too long")
}

// While a heartbeat is handled, others of its peer replace each other and those
// of other peers go ahead.
func TestASlowHeartbeatHoldsUpNobodyElse(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil)
	admit(t, h, "attic", "lab")
	attic, lab := startLink(t, h, "attic"), startLink(t, h, "lab")
	began, goOn := make(chan string, 100), make(chan struct{})
	present(t, h, func(ctx context.Context, conn string, body []byte) []byte {
		if conn == "attic" {
			began <- string(body)
			select {
			case <-goOn:
			case <-ctx.Done():
			}
		}
		return []byte("seen")
	})
	l := attic.conns.get()
	require.NoError(t, l.nc.Publish(beatSubject("attic"), []byte("first")))
	require.Equal(t, "first", next(t, began))
	for i := range 20 {
		require.NoError(t, l.nc.Publish(beatSubject("attic"), fmt.Appendf(nil, "later %d", i)))
	}
	require.NoError(t, l.nc.Flush())

	answer, err := lab.Beat(t.Context(), nil)

	require.NoError(t, err)
	require.Equal(t, "seen", string(answer))
	close(goOn)
	require.Equal(t, "later 19", next(t, began))
	answer, err = attic.Beat(t.Context(), []byte("last"))
	require.NoError(t, err)
	require.Equal(t, "seen", string(answer))
	require.Equal(t, "last", next(t, began))
}

func TestAnEmptyAnswerIsNotSent(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil)
	admit(t, h, "attic")
	k := startLink(t, h, "attic")
	began := make(chan string, 2)
	present(t, h, func(_ context.Context, _ string, body []byte) []byte {
		began <- string(body)
		return bytes.TrimPrefix(body, []byte("quiet"))
	})
	nc := k.conns.get().nc
	answers, err := nc.SubscribeSync(nc.NewInbox())
	require.NoError(t, err)

	require.NoError(t, nc.PublishRequest(beatSubject("attic"), answers.Subject, []byte("quiet")))
	require.Equal(t, "quiet", next(t, began))
	answer, err := k.Beat(t.Context(), []byte("loud")) // is handled after it

	require.NoError(t, err)
	require.Equal(t, "loud", string(answer))
	came, _, err := answers.Pending()
	require.NoError(t, err)
	require.Zero(t, came)
}

func TestABeatWaitsNoLongerThanItsCaller(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil)
	admit(t, h, "attic")
	k := startLink(t, h, "attic")
	began := make(chan struct{}, 1)
	present(t, h, func(context.Context, string, []byte) []byte { began <- struct{}{}; return nil })
	leaving, leave := context.WithCancel(t.Context())
	go func() { <-began; leave() }()

	_, err := k.Beat(leaving, nil)

	require.ErrorIs(t, err, ErrUnavailable)
	require.ErrorIs(t, err, context.Canceled)
}
