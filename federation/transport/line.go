package transport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A line is one NATS connection and its JetStream interface. It never
// reconnects: when the connection ends the line is gone, and whoever needs
// one waits for the next.
type line struct {
	nc   *nats.Conn
	js   jetstream.JetStream
	api  string        // prefix of the JetStream interface
	gone chan struct{} // closed when the connection has ended

	boxOnce sync.Once // of what follows: not every line is read
	box     *mailbox
	boxErr  error
}

// openLine connects and wraps the connection. The prefix of the JetStream
// interface is the native one when api is empty.
func openLine(api string, connect func(...nats.Option) (*nats.Conn, error)) (*line, error) {
	l := &line{api: cmp.Or(api, "$JS.API"), gone: make(chan struct{})}
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
	l.nc = nc
	if err != nil {
		l.close()
		return nil, fmt.Errorf("preparing the connection: %w", err)
	}
	return l, nil
}

// keepLine puts a line into lines and another in its place whenever it is lost,
// until the function it returns is called, which ends the line and waits. It is
// for connections inside the process: a server drops a connection that does not
// keep up, whoever is behind it.
func keepLine(lines *latest[line], log *slog.Logger, what string, open func() (*line, error)) (stop func(), err error) {
	l, err := open()
	if err != nil {
		return func() {}, err
	}
	lines.set(l)
	keeping, end := context.WithCancel(context.Background())
	var keeper sync.WaitGroup
	keeper.Go(func() {
		for l.held(keeping) {
			lines.set(nil)
			log.Warn("a connection inside the process was lost and is replaced", "connection", what, "err", l.nc.LastError())
			if l = reopen(keeping, log, open); l != nil {
				lines.set(l)
			}
		}
		lines.set(nil).close()
	})
	return func() { end(); keeper.Wait() }, nil
}

// held waits until a line is gone, or returns false when ctx ends before.
func (l *line) held(ctx context.Context) bool {
	if l == nil {
		return false
	}
	select {
	case <-ctx.Done():
		return false
	case <-l.gone:
		return true
	}
}

// reopen tries until it has a line, or until ctx ends.
func reopen(ctx context.Context, log *slog.Logger, open func() (*line, error)) *line {
	for wait := backoffMin; ctx.Err() == nil; wait = min(2*wait, backoffMax) {
		l, err := open()
		if err == nil {
			return l
		}
		log.DebugContext(ctx, "a connection inside the process was not replaced yet", "err", err)
		pause(ctx, wait)
	}
	return nil
}

// close ends the connection and waits for its goroutines. A nil line is closed.
func (l *line) close() {
	if l == nil {
		return
	}
	l.nc.Close()
	<-l.gone
}

// What is sent before the first answer to it is awaited: enough to keep a link
// busy, and not more than a slow one carries until callTimeout.
const (
	windowMost  = 256
	windowBytes = 1 << 20
)

// publish sends all messages, waits until each is stored or refused, and
// returns one error per message, nil for stored. It fails at once when the
// line goes.
func (l *line) publish(ctx context.Context, msgs []*nats.Msg) []error {
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

func (l *line) await(ctx context.Context, f jetstream.PubAckFuture) error {
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

// A latest holds a value that comes and goes, and lets others wait for it.
// The zero value holds nothing.
type latest[T any] struct {
	mu      sync.Mutex
	value   *T
	closed  bool
	changed chan struct{} // made by a waiter, closed by the next change
}

func (v *latest[T]) get() *T {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.value
}

// set replaces the value and returns the one before.
func (v *latest[T]) set(value *T) (before *T) {
	return v.change(func() { v.value = value })
}

// close is for when there will be no further value: everybody who waits for
// one gets ErrClosed.
func (v *latest[T]) close() {
	v.change(func() { v.value, v.closed = nil, true })
}

func (v *latest[T]) change(how func()) (before *T) {
	v.mu.Lock()
	defer v.mu.Unlock()
	before = v.value
	how()
	if v.changed != nil {
		close(v.changed)
		v.changed = nil
	}
	return before
}

// await returns the value as soon as there is one.
func (v *latest[T]) await(ctx context.Context) (*T, error) {
	for {
		v.mu.Lock()
		value, closed := v.value, v.closed
		if v.changed == nil {
			v.changed = make(chan struct{})
		}
		changed := v.changed
		v.mu.Unlock()
		switch {
		case closed:
			return nil, ErrClosed
		case value != nil:
			return value, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// pause waits for d or until ctx ends, and says whether it was d.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
