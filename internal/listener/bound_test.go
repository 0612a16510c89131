package listener

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/token"
)

const patience = 30 * time.Second

// A front is a bounded listener that somebody dials.
type front struct {
	*bounded
	said     lines
	accepted chan net.Conn
}

func newFront(t *testing.T, most int) *front {
	t.Helper()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	f := &front{accepted: make(chan net.Conn, most)}
	f.bounded = bound(elsewhere{taken}, most, slog.New(slog.NewTextHandler(&f.said, nil)))
	t.Cleanup(func() { f.Close() })
	go func() {
		for {
			c, err := f.Accept()
			if err != nil {
				return
			}
			f.accepted <- c
		}
	}()
	return f
}

// claimed are the addresses of clients that dial from 127.0.0.N, by N.
var claimed = map[byte]string{2: "192.0.2.2", 3: "192.0.2.3", 4: "192.0.2.4", 5: "127.0.0.5", 6: "127.0.0.6", 7: "2001:db8::1", 8: "2001:db8::2:1", 9: "2001:db8:0:1::1", 10: "::1", own: "192.0.2.11"}

// own is a client that dials from the address that it dials.
const own = 11

// elsewhere is a listener on the loopback whose clients have addresses of other networks.
type elsewhere struct{ net.Listener }

func (l elsewhere) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	last := c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap().As4()[3]
	as := from{c, &net.TCPAddr{IP: net.ParseIP(claimed[last]), Port: 1}, &net.TCPAddr{IP: net.ParseIP("192.0.2.1"), Port: 1}}
	if last == own {
		as.local = as.addr
	}
	return as, nil
}

type from struct {
	net.Conn
	addr, local net.Addr
}

func (c from) RemoteAddr() net.Addr { return c.addr }

func (c from) LocalAddr() net.Addr { return c.local }

// dial connects from the address claimed[last].
func (f *front) dial(t *testing.T, last byte) net.Conn {
	t.Helper()
	c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, last)}}).Dial("tcp", f.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	require.NoError(t, c.SetReadDeadline(time.Now().Add(patience)))
	return c
}

// admits requires that a connection from an address is kept.
func (f *front) admits(t *testing.T, last byte) net.Conn {
	t.Helper()
	f.dial(t, last)
	c := <-f.accepted
	t.Cleanup(func() { c.Close() })
	return c
}

// refuses requires that one is closed.
func (f *front) refuses(t *testing.T, last byte) {
	t.Helper()
	_, err := f.dial(t, last).Read(make([]byte, 1))
	require.Error(t, err)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
}

// One address does not get all connections, and a place is free again when its connection is closed.
func TestOneAddressDoesNotGetAllConnections(t *testing.T) {
	t.Parallel()
	f := newFront(t, DefaultConnections)
	var first net.Conn
	for range DefaultConnections / 2 {
		first = f.admits(t, 2)
	}

	f.refuses(t, 2)
	require.NoError(t, f.admits(t, 3).Close(), "there is room for another one")
	require.NoError(t, first.Close())
	require.Error(t, first.Close(), "and its place is given back once")
	require.NoError(t, f.admits(t, 2).Close())
	require.Equal(t, DefaultConnections/2-1, f.all)
}

// What one host can dial from counts as one address: a network of IPv6, and what a program of this host can dial from.
func TestAHostOfManyAddressesDoesNotGetAllConnections(t *testing.T) {
	t.Parallel()
	for _, host := range [][2]byte{{5, 6}, {7, 8}, {5, 10}, {10, own}} {
		f := newFront(t, 4)
		f.admits(t, host[0])
		f.admits(t, host[1])

		f.refuses(t, host[0])
		f.refuses(t, host[1])
		f.admits(t, 9)
		f.admits(t, 2)

		require.Equal(t, map[string]int{ByAddress: 2, ByAll: 0}, f.refusals())
	}
}

// Connections that are refused are counted by cause, and few lines say so, however many they are.
func TestRefusedConnectionsAreCountedAndSaid(t *testing.T) {
	t.Parallel()
	f := newFront(t, 4)
	f.admits(t, 2)
	f.admits(t, 2)
	f.refuses(t, 2)
	f.admits(t, 3)
	f.admits(t, 3)

	const more = 20
	for range more {
		f.refuses(t, 4)
	}

	require.Equal(t, map[string]int{ByAddress: 1, ByAll: more}, f.refusals())
	said := f.said.String()
	require.Contains(t, said, `level=WARN msg="a connection to the API was refused; there are too many" from=192.0.2.2 cause=address most=4 unsaid=0`)
	require.Contains(t, said, `from=192.0.2.4 cause=all`)
	require.Equal(t, 3, strings.Count(said, "\n"))
}

// lines are what was logged.
type lines struct {
	mu sync.Mutex
	bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.String()
}

// A token that the database does not know any more is looked up in turn again; one of another secret with the same id
// is not forgotten for that.
func TestATokenThatIsForgottenIsNotKnown(t *testing.T) {
	t.Parallel()
	l, known := newLimits(DefaultRate), token.New()
	other := token.New()
	other.ID = known.ID
	require.NoError(t, l.count(known))
	require.True(t, l.knows(known))
	require.False(t, l.knows(other))

	l.forget(other)
	require.True(t, l.knows(known))
	l.forget(known)

	require.False(t, l.knows(known))
	require.Empty(t, l.tokens, "nothing is kept of it")
}

// A token has a rate of its own, and so has an address without one.
func TestATokenHasItsRate(t *testing.T) {
	t.Parallel()
	l, fast, calm := newLimits(DefaultRate), token.New(), token.New()
	here, there := netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("192.0.2.2/32")
	limited := func(ask func() error) (err error) {
		for n := 0; n < 10*DefaultRate && err == nil; n++ {
			err = ask()
		}
		return err
	}

	for what, err := range map[string]error{"a token": limited(func() error { return l.count(fast) }), "an address": limited(func() error { return l.anonymous(here) })} {
		later, ok := errors.AsType[*tooMany](err)
		require.True(t, ok, what)
		require.Equal(t, 1, later.seconds)
		require.Equal(t, commands.TooManyRequests, commands.CodeOf(err))
	}

	require.NoError(t, l.count(calm))
	require.NoError(t, l.anonymous(there))
	for n := range 2 * maxAddresses {
		require.NoError(t, l.anonymous(netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}), 32)))
	}
	require.LessOrEqual(t, len(l.without.each), maxAddresses, "what is kept of addresses has a bound")
}

// However many tokens are shown that are not known, few are looked up at a time, and who goes away waits no more.
func TestAFloodOfTokensIsLookedUpSlowly(t *testing.T) {
	t.Parallel()
	l, begun := newLimits(DefaultRate), time.Now()
	const rounds = 5
	for range rounds*lookupsAtOnce + 1 {
		require.NoError(t, l.waitToLookUp(t.Context()))
	}
	require.GreaterOrEqual(t, time.Since(begun), rounds*lookupPause)
	for range lookupsAtOnce {
		l.lookups <- struct{}{}
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	require.ErrorIs(t, l.waitToLookUp(gone), context.Canceled)
}

// Who does not read his answer does not keep it, nor what writes it.
func TestWhoDoesNotReadIsLeft(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	failed := make(chan error, 1)
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		p := &patient{w, http.NewResponseController(w), 200 * time.Millisecond, 0}
		for {
			if _, err := p.Write(make([]byte, 1<<20)); err != nil {
				failed <- err
				return
			}
		}
	})}
	go func() { _ = s.Serve(taken) }()
	defer s.Close()
	c, err := net.Dial("tcp", taken.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	_, err = c.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"))
	require.NoError(t, err)

	select {
	case err := <-failed:
		require.ErrorContains(t, err, "i/o timeout")
	case <-time.After(patience):
		require.FailNow(t, "it waits for the reader")
	}
}
