package transport

import (
	"context"
	"log/slog"
	"sync"

	"github.com/spawnmesh/spawnmesh/internal/wait"
)

// keepConn puts a connection into conns and another in its place whenever it is lost,
// until the function it returns is called, which ends the connection and waits. It is
// for connections inside the process: a server drops a connection that does not
// keep up, whoever is behind it. ctx bounds how often the first one is tried.
func keepConn(ctx context.Context, conns *latest[natsConn], log *slog.Logger, what string, open func() (*natsConn, error)) (stop func(), err error) {
	l, err := reopen(ctx, log, open)
	if err != nil {
		return func() {}, err
	}
	conns.set(l)
	keeping, end := context.WithCancel(context.Background())
	var keeper sync.WaitGroup
	keeper.Go(func() {
		for l.held(keeping) {
			conns.set(nil)
			log.Warn("a connection inside the process was lost and is replaced", "connection", what, "err", l.nc.LastError())
			if l, _ = reopen(keeping, log, open); l != nil {
				conns.set(l)
			}
		}
		conns.set(nil).close()
	})
	return func() { end(); keeper.Wait() }, nil
}

// held waits until a connection is gone, or returns false when ctx ends before.
func (l *natsConn) held(ctx context.Context) bool {
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

// reopen tries until it has a connection. When ctx ends before, it says why the last try
// failed.
func reopen(ctx context.Context, log *slog.Logger, open func() (*natsConn, error)) (*natsConn, error) {
	for delay := backoffMin; ; delay = min(2*delay, backoffMax) {
		l, err := open()
		if err == nil {
			return l, nil
		}
		log.DebugContext(ctx, "there is no connection inside the process yet", "err", err)
		if wait.For(ctx, delay) != nil {
			return nil, err
		}
	}
}
