package main

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// A listener passes on notifications. Several that come together are one.
type listener struct {
	c    chan struct{}
	stop context.CancelFunc
	done chan struct{}
}

// listen opens a connection of its own. The goroutine ends with close.
func listen(ctx context.Context, url, channel string) (*listener, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
		conn.Close(ctx)
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	l := &listener{c: make(chan struct{}, 1), stop: stop, done: make(chan struct{})}
	go func() {
		defer close(l.done)
		defer conn.Close(context.WithoutCancel(ctx))
		for {
			if _, err := conn.WaitForNotification(ctx); err != nil {
				return // closed; a broken connection leaves the worker with its poll
			}
			select {
			case l.c <- struct{}{}:
			default:
			}
		}
	}()
	return l, nil
}

func (l *listener) close() {
	l.stop()
	<-l.done
}
