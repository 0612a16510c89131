package transport

import (
	"crypto/ed25519"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A hub that takes each connection and resets it, or never says a word, is dialled ever more slowly.
func TestAHubThatResetsIsNotDialledBusily(t *testing.T) {
	t.Parallel()
	cert, err := Certificate(ed25519.NewKeyFromSeed(seed("tls")))
	require.NoError(t, err)
	for name, answer := range map[string]func(net.Conn){
		"it resets": func(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0); _ = c.Close() },
		"it closes": func(c net.Conn) { _ = c.Close() },
		"it speaks something else": func(c net.Conn) {
			_, _ = c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
			_ = c.Close()
		},
		"it says half a word": func(c net.Conn) { _, _ = c.Write([]byte{22, 3}); _ = c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			defer l.Close()
			var dials atomic.Int32
			go func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					dials.Add(1)
					answer(c)
				}
			}()
			k := &Link{Address: l.Addr().String(), Pins: []string{Pin(cert)}, ID: "attic", Seed: seed("attic")}
			run(t, k.Run)

			time.Sleep(4 * time.Second) // it is what is measured

			require.Greater(t, dials.Load(), int32(1))
			require.Less(t, dials.Load(), int32(15))
			require.ErrorIs(t, k.State().Cause, ErrUnavailable)
			require.False(t, k.State().Up)
		})
	}
}
