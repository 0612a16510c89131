package listener

import (
	"net"
	"net/netip"
	"sync"
)

// How many connections there are at a time. One address does not get them all.
const (
	maxConnections = 512
	maxOfOne       = maxConnections / 2
)

// bounded closes connections that are too many.
type bounded struct {
	net.Listener

	mu  sync.Mutex // guards what follows
	all int
	of  map[netip.Addr]int
}

func bound(l net.Listener) *bounded { return &bounded{Listener: l, of: map[netip.Addr]int{}} }

// Accept waits for a connection that there is room for.
func (b *bounded) Accept() (net.Conn, error) {
	for {
		c, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from := c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
		if b.admit(from) {
			return &counted{Conn: c, left: sync.OnceFunc(func() { b.leave(from) })}, nil
		}
		_ = c.Close() // nothing was said
	}
}

func (b *bounded) admit(from netip.Addr) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.all >= maxConnections || b.of[from] >= maxOfOne {
		return false
	}
	b.all++
	b.of[from]++
	return true
}

func (b *bounded) leave(from netip.Addr) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all--
	if b.of[from]--; b.of[from] == 0 {
		delete(b.of, from)
	}
}

// A counted connection gives its place back when it is closed.
type counted struct {
	net.Conn
	left func()
}

// Close closes the connection.
func (c *counted) Close() error {
	c.left()
	return c.Conn.Close()
}
