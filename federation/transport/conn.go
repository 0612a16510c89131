package transport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A natsConn is one NATS connection and its JetStream interface. It never
// reconnects: when the connection ends it is gone, and whoever needs
// one waits for the next.
type natsConn struct {
	nc     *nats.Conn
	js     jetstream.JetStream
	server string        // the name that its server has as long as it runs
	api    string        // prefix of the JetStream interface
	gone   chan struct{} // closed when the connection has ended
	socket net.Conn      // of a connection that was dialled; nil of one inside the process

	boxOnce sync.Once // of what follows: not every connection is read
	box     *mailbox
	boxErr  error
}

// openConn connects and wraps the connection. The prefix of the JetStream
// interface is the native one when api is empty.
func openConn(api string, connect func(...nats.Option) (*nats.Conn, error)) (*natsConn, error) {
	l := &natsConn{api: cmp.Or(api, "$JS.API"), gone: make(chan struct{})}
	nc, err := connect(
		nats.NoReconnect(),
		nats.IgnoreDiscoveredServers(),
		nats.ClosedHandler(func(*nats.Conn) { close(l.gone) }),
		// The library's own handler prints. What a server refuses shows up
		// where the answer is missing.
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}),
	)
	if err != nil {
		return nil, err
	}
	timeout := jetstream.WithPublishAsyncTimeout(callTimeout)
	if api == "" {
		l.js, err = jetstream.New(nc, timeout)
	} else {
		l.js, err = jetstream.NewWithAPIPrefix(nc, api, timeout)
	}
	l.nc, l.server = nc, nc.ConnectedServerId()
	if err != nil {
		l.close()
		return nil, fmt.Errorf("preparing the connection: %w", err)
	}
	return l, nil
}

// close ends the connection and waits for its goroutines. A nil connection is closed.
func (l *natsConn) close() {
	if l == nil {
		return
	}
	l.nc.Close()
	<-l.gone
}

// sever ends a dialled connection at once, also while the line takes nothing of what is being sent.
func (l *natsConn) sever() {
	_ = l.socket.Close() // an error says that it was closed before
	l.close()
}

// What is sent before the first answer to it is awaited: enough to keep a link
// busy, and not more than a slow one carries until callTimeout.
const (
	windowMost  = 256
	windowBytes = 1 << 20
)

// publish sends all messages, waits until each is stored or refused, and
// returns one error per message, nil for stored. It fails at once when the
// connection goes.
func (l *natsConn) publish(ctx context.Context, msgs []*nats.Msg) []error {
	errs := make([]error, 0, len(msgs))
	for len(msgs) > 0 {
		n := window(msgs)
		futures := make([]jetstream.PubAckFuture, n)
		failed := make([]error, n)
		for i, m := range msgs[:n] {
			futures[i], failed[i] = l.js.PublishMsgAsync(m, jetstream.WithStallWait(callTimeout), jetstream.WithRetryAttempts(0))
		}
		for i, f := range futures {
			if failed[i] == nil {
				failed[i] = l.await(ctx, f)
			}
			errs = append(errs, publishError(failed[i]))
		}
		msgs = msgs[n:]
	}
	return errs
}

// window is how many of msgs are sent at once, at least one.
func window(msgs []*nats.Msg) (n int) {
	for bytes := 0; n < min(len(msgs), windowMost); n++ {
		if bytes += len(msgs[n].Data); bytes > windowBytes && n > 0 {
			break
		}
	}
	return n
}

func (l *natsConn) await(ctx context.Context, f jetstream.PubAckFuture) error {
	select {
	case <-f.Ok():
		return nil
	case err := <-f.Err():
		return err
	case <-l.gone:
		return nats.ErrConnectionClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// publishError turns what the server or the library says into ErrQuota or
// ErrUnavailable. The server answers "store failed" for quotas only: after a
// failed write it does not answer at all.
func publishError(err error) error {
	if err == nil {
		return nil
	}
	const storeFailed = 10077
	if api, ok := errors.AsType[*jetstream.APIError](err); ok && api.ErrorCode == storeFailed {
		return fmt.Errorf("%w: %s", ErrQuota, api.Description)
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}
