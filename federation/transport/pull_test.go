package transport

import (
	"context"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// A request that the server takes and never answers does not hold its queue: the
// reader is told, and asks again.
func TestAServerThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil)
	conn, err := openConn("STUCK.API", func(o ...nats.Option) (*nats.Conn, error) {
		return nats.Connect("", append(o, nats.InProcessServer(h.srv), nats.UserInfo(accountHub, h.gate.secret))...)
	})
	require.NoError(t, err)
	t.Cleanup(conn.close)
	asked, err := conn.nc.SubscribeSync("STUCK.API.CONSUMER.MSG.NEXT.>")
	require.NoError(t, err)
	q, err := conn.open("STREAM", "queue", 1)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 3*callTimeout)
	defer cancel()

	got, _, err := q.pull(ctx, Most{Messages: 1, Bytes: leastBytes}, 0)

	require.Empty(t, got)
	require.EqualError(t, err, "the server does not answer")
	pending, _, err := asked.Pending()
	require.NoError(t, err)
	require.Equal(t, 1, pending, "it was asked")
}
