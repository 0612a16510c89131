package control

import (
	"context"
	"net"
	"net/http"
	"os"
	"sync"
)

// Within returns a client of h in this same process, for an instance that does
// not run: it asks, and reads the answers, as [NewClient] does over the socket of
// one that does. The caller is this process's user. stop ends it.
func Within(ctx context.Context, dir string, h http.Handler) (c *Client, stop func()) {
	l := &within{calls: make(chan net.Conn), closed: make(chan struct{})}
	s := &http.Server{Handler: h, BaseContext: func(net.Listener) context.Context {
		return WithCaller(ctx, user(os.Geteuid()))
	}}
	go func() { _ = s.Serve(l) }() // it ends with stop
	return local(dir, transport(l.dial)), func() { _ = s.Close() }
}

// within is a listener that is dialled from the same process.
type within struct {
	calls  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *within) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case l.calls <- there:
		return here, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept waits for a dial.
func (l *within) Accept() (net.Conn, error) {
	select {
	case c := <-l.calls:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close ends all waiting.
func (l *within) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr is nowhere.
func (l *within) Addr() net.Addr { return &net.UnixAddr{Net: "pipe"} }
