package transport

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func base64url(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// reports is Reports of a peer into a basket.
func (h *Hub) reports(conn string, into *basket[Report]) func(context.Context) error {
	return func(ctx context.Context) error { return h.Reports(ctx, conn, most(100), into.add) }
}

func (h *Hub) logs(conn string, into *basket[Report]) func(context.Context) error {
	return func(ctx context.Context) error { return h.Logs(ctx, conn, most(100), into.add) }
}

// most bounds batches by number.
func most(n int) Most { return Most{Messages: n} }

// wire is a connection on which a test speaks the protocol by hand.
type wire struct {
	t     testing.TB
	conn  net.Conn
	lines *bufio.Reader
	nonce string
}

func dialWire(t testing.TB, h *Hub) *wire {
	t.Helper()
	conn, err := tls.Dial("tcp", h.Addr(), clientTLS([]string{Pin(h.Certificate)}))
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	w := &wire{t: t, conn: conn, lines: bufio.NewReader(conn)}
	var info struct{ Nonce string }
	require.NoError(t, json.Unmarshal([]byte(strings.TrimPrefix(w.read(), "INFO ")), &info))
	w.nonce = info.Nonce
	return w
}

func (w *wire) write(s string) {
	w.t.Helper()
	_, err := w.conn.Write([]byte(s))
	require.NoError(w.t, err)
}

// read returns the next line that is not a PING or INFO after the first, and
// "" at the end of the connection.
func (w *wire) read() string {
	for {
		line, err := w.lines.ReadString('\n')
		if err != nil {
			return ""
		}
		line = strings.TrimSpace(line)
		if line == "PING" || (w.nonce != "" && strings.HasPrefix(line, "INFO ")) {
			continue
		}
		return line
	}
}
