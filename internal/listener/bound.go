package listener

import (
	"cmp"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/spawnmesh/spawnmesh/commands"
)

// Bounds are what clients may have of a listener; what is 0 is the default.
type Bounds struct {
	Connections int // at a time; one address, of IPv6 one network of 64 bits, does not get more than half of them
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

// Why a connection is one too many.
const (
	ByAddress = "address" // its address has half of those that there may be
	ByAll     = "all"     // there are as many as there may be
)

// bounded closes connections that are too many.
type bounded struct {
	net.Listener
	most int
	log  *slog.Logger
	said *seldom // of connections that were closed

	mu      sync.Mutex // guards what follows
	all     int
	of      map[netip.Prefix]int
	refused map[string]int // by cause
}

func bound(l net.Listener, most int, log *slog.Logger) *bounded {
	return &bounded{Listener: l, most: most, log: log, said: newSeldom(rate.Every(time.Minute), 3), of: map[netip.Prefix]int{}, refused: map[string]int{ByAddress: 0, ByAll: 0}}
}

// Accept waits for a connection that there is room for.
func (b *bounded) Accept() (net.Conn, error) {
	for {
		c, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		addr := c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
		from := hostOf(addr, c.LocalAddr())
		cause := b.admit(from)
		if cause == "" {
			return &counted{Conn: c, left: sync.OnceFunc(func() { b.leave(from) })}, nil
		}
		if unsaid, now := b.said.due(); now {
			b.log.Warn("a connection to the API was refused; there are too many", "from", addr, "cause", cause, "most", b.most, "unsaid", unsaid)
		}
		_ = c.Close() // nothing was said to it
	}
}

// thisHost stands for the programs of this host, as far as they can be told.
var thisHost = netip.MustParsePrefix("127.0.0.0/8")

// hostOf is [networkOf], or thisHost for who dials from or to the loopback, or an address from itself. A host with addresses of
// both families, or of several networks, is taken for as many.
func hostOf(addr netip.Addr, local net.Addr) netip.Prefix {
	at := local.(*net.TCPAddr).AddrPort().Addr().Unmap()
	if addr.IsLoopback() || at.IsLoopback() || addr == at {
		return thisHost
	}
	return networkOf(addr)
}

// admit counts a connection, or says why it is one too many.
func (b *bounded) admit(from netip.Prefix) (cause string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.all >= b.most:
		cause = ByAll
	case b.of[from] >= b.most/2:
		cause = ByAddress
	default:
		b.all++
		b.of[from]++
		return ""
	}
	b.refused[cause]++
	return cause
}

// refusals counts the connections that were closed, by cause.
func (b *bounded) refusals() map[string]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.refused)
}

func (b *bounded) leave(from netip.Prefix) {
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
