package listener

import (
	"cmp"
	"net"
	"net/netip"
	"sync"

	"github.com/spawnmesh/spawnmesh/commands"
)

// Bounds are what clients may have of a listener; what is 0 is the default.
type Bounds struct {
	Connections int // at a time; one address does not get more than half of them
	Rate        int // of requests with one token, a second, and twice as many at once
	Open        int // requests with one token at a time, streams among them
}

// The defaults of [Bounds].
const (
	DefaultConnections = 512
	DefaultRate        = 100
	DefaultOpen        = 64
)

// Whole is b with defaults for what is 0.
func (b Bounds) Whole() Bounds {
	return Bounds{cmp.Or(b.Connections, DefaultConnections), cmp.Or(b.Rate, DefaultRate), cmp.Or(b.Open, DefaultOpen)}
}

// Check refuses what nobody could be served with, or what is no bound.
func (b Bounds) Check() error {
	b = b.Whole()
	if b.Connections < 2 || b.Connections > 1<<16 || b.Rate < 1 || b.Rate > 1<<16 || b.Open < 1 || b.Open > 1<<16 {
		return commands.Refuse(commands.Validation, "--api-connections is from 2 to 65536, --api-rate and --api-open from 1 to 65536")
	}
	return nil
}

// bounded closes connections that are too many.
type bounded struct {
	net.Listener
	most int

	mu  sync.Mutex // guards what follows
	all int
	of  map[netip.Addr]int
}

func bound(l net.Listener, most int) *bounded {
	return &bounded{Listener: l, most: most, of: map[netip.Addr]int{}}
}

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
	if b.all >= b.most || b.of[from] >= b.most/2 {
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
