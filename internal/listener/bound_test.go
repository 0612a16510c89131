package listener

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/token"
)

const patience = 30 * time.Second

// One address does not get all connections, and a place is free again when its connection is closed.
func TestOneAddressDoesNotGetAllConnections(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := bound(taken, DefaultConnections)
	defer l.Close()
	accepted := make(chan net.Conn, DefaultConnections)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	dial := func(last byte) net.Conn {
		c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, last)}}).Dial("tcp", taken.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { c.Close() })
		require.NoError(t, c.SetReadDeadline(time.Now().Add(patience)))
		return c
	}
	isCut := func(c net.Conn) bool {
		_, err := c.Read(make([]byte, 1))
		return err != nil
	}
	var first net.Conn
	for range DefaultConnections / 2 {
		dial(2)
		c := <-accepted
		t.Cleanup(func() { c.Close() })
		first = c
	}

	require.True(t, isCut(dial(2)), "there are too many of this address")
	dial(3)
	require.NoError(t, (<-accepted).Close(), "there is room for another one")
	require.NoError(t, first.Close())
	require.Error(t, first.Close(), "and its place is given back once")
	dial(2)
	require.NoError(t, (<-accepted).Close())
	require.Equal(t, DefaultConnections/2-1, l.all)
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
