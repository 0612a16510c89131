package transport

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTheSameKeyHasTheSamePin(t *testing.T) {
	t.Parallel()
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	for name, key := range map[string]crypto.Signer{"Ed25519": ed25519.NewKeyFromSeed(seed("k")), "P-256": ec} {
		t.Run(name, func(t *testing.T) {
			first, err := Certificate(key)
			require.NoError(t, err)
			second, err := Certificate(key)
			require.NoError(t, err)
			other, err := Certificate(ed25519.NewKeyFromSeed(seed("other")))
			require.NoError(t, err)

			require.Equal(t, Pin(first), Pin(second))
			require.Equal(t, Pin(first), Pin(tls.Certificate{Certificate: first.Certificate}))
			require.NotEqual(t, Pin(first), Pin(other))
			require.NoError(t, checkPins([]string{Pin(first)}))
			h := startHub(t, func(h *Hub) { h.Certificate = first })
			admit(t, h, "attic")
			startLink(t, h, "attic")
		})
	}
	require.Empty(t, Pin(tls.Certificate{Certificate: [][]byte{[]byte("no certificate")}}))
}

func TestAHubSpeaksOnlyTLS13(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil)

	older := clientTLS([]string{Pin(h.Certificate)})
	older.MinVersion, older.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	_, err := tls.Dial("tcp", h.Addr(), older)
	require.Error(t, err)

	plain, err := net.Dial("tcp", h.Addr())
	require.NoError(t, err)
	defer plain.Close()
	_, err = plain.Write([]byte("CONNECT {}\r\nPING\r\n"))
	require.NoError(t, err)
	require.NoError(t, plain.SetReadDeadline(time.Now().Add(patience)))
	said, err := io.ReadAll(plain)
	require.NoError(t, err)
	require.NotContains(t, string(said), "INFO")
	require.NotContains(t, string(said), "PONG")
}
