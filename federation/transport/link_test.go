package transport

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
)

func TestAPendingPeerIsRefusedUntilItIsAdmitted(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil)
	k := newLink(t, h, "attic")
	run(t, k.Run)
	eventually(t, func() bool { return errors.Is(k.State().Cause, ErrRefused) }, "a refusal")
	errs := k.Publish(t.Context(), events("early"))
	require.ErrorIs(t, errs[0], ErrUnavailable)
	require.ErrorIs(t, errs[0], ErrRefused)

	before := time.Now()
	admit(t, h, "attic")
	eventually(t, func() bool { return k.State().Up }, "the link")

	t.Logf("linked %v after it was admitted, redialling every %v", time.Since(before), k.Redial)
	require.Less(t, time.Since(before), 10*k.Redial)
	requireSent(t, k.Publish(t.Context(), events("late")))
}

// While a peer publishes as fast as it can, Cut returns only when nothing of
// what it sends from then on arrives.
func TestCutIsExactAndAdmitBringsThePeerBack(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil)
	admit(t, h, "attic")
	for round := range 5 {
		k := newLink(t, h, "attic")
		stop := run(t, k.Run)
		eventually(t, func() bool { return k.State().Up }, "the link")
		l := k.conns.get()
		var cut atomic.Bool
		flood := make(chan int)
		go func() {
			late := 0
			for n := 0; l.nc.IsConnected() || late < 100; n++ {
				id := fmt.Sprintf("before-%d-%d", round, n)
				if cut.Load() {
					late++
					id = fmt.Sprintf("after-%d-%d", round, n)
				}
				_ = l.nc.PublishMsg(stamped(reportSubject("attic", commands.QueueLogs), id, nil)) // fails once it is cut
				_ = l.nc.FlushTimeout(time.Millisecond)
			}
			flood <- late
		}()
		eventually(t, func() bool { return k.conns.get() != nil && h.Peers() != nil }, "traffic")

		began := time.Now()
		h.Cut("attic")
		took := time.Since(began)
		cut.Store(true)

		require.GreaterOrEqual(t, next(t, flood), 100)
		requireSent(t, h.Publish(t.Context(), spawns("attic", commands.QueueRun, fmt.Sprintf("while-cut-%d", round))))
		eventually(t, func() bool { return errors.Is(k.State().Cause, ErrRefused) }, "a refusal")
		require.Empty(t, h.Peers())
		stop()
		admit(t, h, "attic")
		t.Logf("cut in %v", took)
	}
	k := startLink(t, h, "attic")
	var reports basket[Report]
	var cmds basket[Command]
	run(t, h.reports("attic", &reports))
	run(t, func(ctx context.Context) error { return k.Commands(ctx, commands.QueueRun, most(10), cmds.add) })
	requireSent(t, k.Publish(t.Context(), events("back")))
	eventually(t, func() bool {
		all := reports.all()
		return len(all) > 0 && all[len(all)-1].ID == "back"
	}, "the report after it came back")
	for _, id := range reportIDs(reports.all()) {
		require.False(t, strings.HasPrefix(id, "after-"), "%s arrived", id)
	}
	require.Equal(t, ids("while-cut", 5), commandIDs(cmds.await(t, 5)))
}

func TestTheNewestConnectionOfAKeyStays(t *testing.T) {
	t.Parallel()
	log, lines := newTestLog(t)
	h := startHub(t, func(h *Hub) { h.Log = log })
	admit(t, h, "attic")
	older := rawPeer(t, h, "attic")

	newer := rawPeer(t, h, "attic")

	eventually(t, older.IsClosed, "end of the older connection")
	require.NoError(t, newer.Flush())
	require.Len(t, h.Peers(), 1)
	require.Contains(t, lines.String(), `the key was copied" connection="spoke attic"`)
}

func TestANewKeyReplacesTheOldOne(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil)
	admit(t, h, "attic", "lab")
	k := startLink(t, h, "attic")

	require.NoError(t, h.Admit(t.Context(), Peer{ID: "attic", NKey: nkeyOf(t, "attic-2")}))

	eventually(t, func() bool { return errors.Is(k.State().Cause, ErrRefused) }, "a refusal of the old key")
	next := newLink(t, h, "attic")
	next.Seed = seed("attic-2")
	run(t, next.Run)
	eventually(t, func() bool { return next.State().Up }, "the link with the new key")
	require.ErrorContains(t, h.Admit(t.Context(), Peer{ID: "attic", NKey: nkeyOf(t, "lab")}), "is the key of lab")
	require.Error(t, h.Admit(t.Context(), Peer{ID: "attic", NKey: "UNOTAKEY"}))
	require.Error(t, h.Admit(t.Context(), Peer{ID: "a.b", NKey: nkeyOf(t, "other")}))
}

func TestALinkThatIsMisconfiguredSaysSo(t *testing.T) {
	t.Parallel()
	pin := []string{Pin(tls.Certificate{})}
	cert, err := Certificate(ed25519.NewKeyFromSeed(seed("tls")))
	require.NoError(t, err)
	good := []string{Pin(cert)}
	wrong := map[string]*Link{
		"no id":              {Address: "h:1", Pins: good, Seed: seed("a")},
		"an id with dots":    {Address: "h:1", Pins: good, Seed: seed("a"), ID: "a.b"},
		"a short seed":       {Address: "h:1", Pins: good, Seed: []byte("short"), ID: "a"},
		"no pin":             {Address: "h:1", Seed: seed("a"), ID: "a"},
		"an empty pin":       {Address: "h:1", Pins: pin, Seed: seed("a"), ID: "a"},
		"no port":            {Address: "h", Pins: good, Seed: seed("a"), ID: "a"},
		"two addresses":      {Address: "h:1,g:1", Pins: good, Seed: seed("a"), ID: "a"},
		"a websocket":        {Address: "wss://h:1", Pins: good, Seed: seed("a"), ID: "a"},
		"a user in the name": {Address: "u@h:1", Pins: good, Seed: seed("a"), ID: "a"},
	}
	for name, k := range wrong {
		t.Run(name, func(t *testing.T) {
			require.Error(t, k.Run(t.Context()))
		})
	}
}

// listenTLS serves one certificate and hands every connection to serve.
func listenTLS(t *testing.T, serve func(*tls.Conn)) (address, pin string) {
	t.Helper()
	cert, err := Certificate(ed25519.NewKeyFromSeed(seed("hostile")))
	require.NoError(t, err)
	l, err := tls.Listen("tcp", "127.0.0.1:0", serverTLS(cert))
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serve(conn.(*tls.Conn))
			conn.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr().String(), Pin(cert)
}

func TestAHubWithAnotherKeyGetsNothing(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil)
	var dials, bytes atomic.Int64
	address, _ := listenTLS(t, func(c *tls.Conn) {
		dials.Add(1)
		n, err := io.Copy(io.Discard, c) // what comes after a handshake
		bytes.Add(n)
		if err == nil {
			bytes.Add(1) // a handshake that the other side completed
		}
	})
	k := newLink(t, h, "attic")
	k.Address = address
	run(t, k.Run)

	eventually(t, func() bool { return errors.Is(k.State().Cause, ErrPin) && dials.Load() > 1 }, "the pin to be refused twice")

	require.Zero(t, bytes.Load())
	require.ErrorIs(t, k.Publish(t.Context(), events("x"))[0], ErrPin)
	_, err := DialJoin(t.Context(), address, k.Pins, as("ABCDEFGHIJKLMNOPQRST"))
	require.ErrorIs(t, err, ErrPin)
	require.Zero(t, bytes.Load())
}

func TestASecondPinIsTrustedToo(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil)
	admit(t, h, "attic")
	k := newLink(t, h, "attic")
	other, err := Certificate(ed25519.NewKeyFromSeed(seed("next")))
	require.NoError(t, err)
	k.Pins = []string{Pin(other), k.Pins[0]}
	run(t, k.Run)

	eventually(t, func() bool { return k.State().Up }, "the link")
}

// A hub draws the nonce that a spoke signs. What is not a nonce is not signed.
func TestAHubCannotHaveOtherThingsSigned(t *testing.T) {
	t.Parallel()
	key := ed25519.NewKeyFromSeed(seed("attic"))
	for _, nonce := range []string{"", "short", "sixteen_chars_16", "AAAAAAAAAAAAAA=", "AAAAAAA AAAAAAA", "AAAAAAAAAAAAAA\n", "spawnmesh-command-v1|spawn|attic"} {
		_, err := signNonce(key, []byte(nonce))
		require.Error(t, err, "%q was signed", nonce)
	}
	_, err := signNonce(key, []byte("kOPJ_-9sYlmoOUU"))
	require.NoError(t, err)

	signed := make(chan string, 16)
	address, pin := listenTLS(t, func(c *tls.Conn) {
		c.SetDeadline(time.Now().Add(patience))
		fmt.Fprintf(c, "INFO {\"server_id\":\"x\",\"version\":\"2.15.2\",\"proto\":1,\"headers\":true,\"auth_required\":true,\"tls_required\":true,\"max_payload\":1048576,\"nonce\":%q}\r\n", "spawnmesh-command-v1|spawn|attic")
		line, _ := bufio.NewReader(c).ReadString('\n')
		signed <- line
	})
	k := &Link{Address: address, Pins: []string{pin}, ID: "attic", Seed: seed("attic"), Redial: 10 * time.Millisecond}
	run(t, k.Run)

	for range 2 {
		require.NotContains(t, next(t, signed), `"sig"`)
	}
	require.ErrorContains(t, k.State().Cause, "not a nonce")
}

func TestALinkReportsItsChangesInOrder(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil)
	k := newLink(t, h, "attic")
	states := make(chan LinkState, 16)
	k.Changed = func(s LinkState) { states <- s }
	stop := run(t, k.Run)

	refused := next(t, states)
	admit(t, h, "attic")
	up := next(t, states)
	h.Cut("attic")
	lost, again := next(t, states), next(t, states)
	stop()
	ended := next(t, states)

	require.ErrorIs(t, refused.Cause, ErrRefused)
	require.True(t, up.Up)
	require.NoError(t, up.Cause)
	require.ErrorIs(t, lost.Cause, ErrUnavailable)
	require.ErrorIs(t, again.Cause, ErrRefused)
	require.Equal(t, lost.Since, again.Since)
	require.ErrorIs(t, ended.Cause, ErrUnavailable)
	require.False(t, up.Since.Before(refused.Since))
}

func TestAHubThatCannotBeReachedIsRedialled(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().String()
	require.NoError(t, l.Close())
	cert, err := Certificate(ed25519.NewKeyFromSeed(seed("tls")))
	require.NoError(t, err)
	k := &Link{Address: address, Pins: []string{Pin(cert)}, ID: "attic", Seed: seed("attic"), Redial: 10 * time.Millisecond}
	run(t, k.Run)

	eventually(t, func() bool { return errors.Is(k.State().Cause, ErrUnavailable) }, "the cause")

	require.NotErrorIs(t, k.State().Cause, ErrRefused)
	require.NotErrorIs(t, k.State().Cause, ErrPin)
	_, err = k.Beat(t.Context(), nil)
	require.ErrorIs(t, err, ErrUnavailable)
}
