package control

import (
	"context"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// maxUnshown is how many connections may be open that have shown no key. An agent may dial as fast as it can: the files of an
// instance are not for those. The oldest goes first, as who has the key shows it at once; while there are so many, connections are
// taken in no faster than that takes.
const maxUnshown = 256

// unshown are the open connections that have shown no key, the oldest first.
type unshown struct {
	mu    sync.Mutex
	conns []net.Conn
}

// add takes in a connection, and closes the oldest where there are too many.
func (u *unshown) add(c net.Conn) {
	if u.full() {
		time.Sleep(time.Millisecond)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.conns = append(u.conns, c); len(u.conns) > maxUnshown {
		_ = u.conns[0].Close()
		u.conns = u.conns[1:]
	}
}

func (u *unshown) full() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.conns) >= maxUnshown
}

// forget lets go of a connection that has shown the key, or is closed.
func (u *unshown) forget(c net.Conn) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if i := slices.Index(u.conns, c); i >= 0 {
		u.conns = slices.Delete(u.conns, i, i+1)
	}
}

// turned hears from the server how a connection stands.
func (u *unshown) turned(c net.Conn, state http.ConnState) {
	if state == http.StateClosed {
		u.forget(c)
	}
}

type connKey struct{}

// shown notes that the connection of a request has shown the key.
func (u *unshown) shown(r *http.Request) {
	if c, ok := r.Context().Value(connKey{}).(net.Conn); ok {
		u.forget(c)
	}
}

// accept takes in a connection whose requests have ctx.
func (u *unshown) accept(ctx context.Context, c net.Conn) context.Context {
	u.add(c)
	return context.WithValue(ctx, connKey{}, c)
}
