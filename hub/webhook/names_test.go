package webhook

import (
	"context"
	"encoding/binary"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// names is a server of DNS that has one address of IPv4 for every name.
type names struct {
	conn net.PacketConn
	mu   sync.Mutex // guards ip
	ip   net.IP
}

func newNames(t *testing.T) *names {
	t.Helper()
	conn, err := net.ListenPacket("udp4", "127.0.0.1:0")
	require.NoError(t, err)
	n := &names{conn: conn, ip: net.IPv4zero}
	var served sync.WaitGroup
	served.Go(n.serve)
	t.Cleanup(func() { _ = conn.Close(); served.Wait() })
	return n
}

func (n *names) mean(ip net.IP) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ip = ip.To4()
}

func (n *names) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", n.conn.LocalAddr().String())
	}}
}

func (n *names) serve() {
	buf := make([]byte, 512)
	for {
		size, from, err := n.conn.ReadFrom(buf)
		if err != nil {
			return
		}
		_, _ = n.conn.WriteTo(n.answer(buf[:size]), from)
	}
}

// answer answers a message with one question.
func (n *names) answer(q []byte) []byte {
	n.mu.Lock()
	defer n.mu.Unlock()
	end := 12
	for q[end] != 0 {
		end += int(q[end]) + 1
	}
	end += 5
	kind := binary.BigEndian.Uint16(q[end-4:])
	a := append([]byte{q[0], q[1], 0x84, 0, 0, 1, 0, 0, 0, 0, 0, 0}, q[12:end]...)
	if kind != 1 {
		return a
	}
	a[7] = 1
	a = append(a, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4)
	return append(a, n.ip...)
}
