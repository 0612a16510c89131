package hub_test

import (
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/federation/join"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
	"github.com/spawnmesh/spawnmesh/internal/scale"
)

// strangers are what somebody without a token can call himself when he joins.
func strangers(token, other join.Token) []func(exporter []byte) string {
	noise := func() string { return (rand.Text() + rand.Text())[:32] }
	heard := token.JoinID([]byte("another connection"))
	return []func([]byte) string{
		func([]byte) string { return rand.Text() },
		func([]byte) string { return strings.ReplaceAll(meshtest.NewID(), "-", "") + noise() },
		func([]byte) string { return heard[:32] + noise() },
		func(exporter []byte) string { return heard[:32] + other.JoinID(exporter)[32:] },
		func([]byte) string { return heard },
	}
}

// joinLogin logs in as somebody who joins and returns what the hub said until it
// closed the connection: no more work than it costs the hub.
func joinLogin(link string, joinID func(exporter []byte) string) string {
	c, err := tls.Dial("tcp", link, &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true, CurvePreferences: []tls.CurveID{tls.X25519}})
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	state := c.ConnectionState()
	exporter, err := state.ExportKeyingMaterial("EXPORTER-spawnmesh-join", nil, 32)
	if err != nil {
		return err.Error()
	}
	fmt.Fprintf(c, "CONNECT {\"user\":%q,\"protocol\":1,\"verbose\":false}\r\nPING\r\n", "join_"+joinID(exporter))
	said, _ := io.ReadAll(c) // a hub that closes may cut its last words
	return string(said)
}

// However many log in without a token, they cost no place and a handful of rows,
// and whoever holds a token joins meanwhile. SPAWNMESH_LOGINS says how many.
func TestAFloodWithoutTokensKeepsNobodyOut(t *testing.T) {
	t.Parallel()
	logins := int64(scale.Of(t, "SPAWNMESH_LOGINS", 1000))
	m := meshtest.Start(t)
	n, proxy := m.Newcomer(t, "attic"), meshtest.NewProxy(t, m.Hub.Link)
	own := m.Token(t, "attic", n.Proxy)
	who := strangers(m.Token(t, "attic", proxy), meshtest.Start(t).Token(t, "attic", proxy))
	end, began := m.Hub.AuditEnd(t), time.Now()
	var next, refused, entered atomic.Int64
	var flood sync.WaitGroup
	half, joined := make(chan struct{}), make(chan struct{})
	for range 16 {
		flood.Go(func() {
			for {
				i := next.Add(1)
				if i == logins/2 {
					close(half)
				}
				if i > logins && closed(joined) {
					return // not before the one who holds a token is in
				}
				said := joinLogin(m.Hub.Link, who[i%int64(len(who))])
				if strings.Contains(said, "Authorization Violation") {
					refused.Add(1)
				} else if strings.Contains(said, "PONG") {
					entered.Add(1)
				}
			}
		})
	}
	<-half

	_, err := n.JoinWith(t, own)

	require.NoError(t, err)
	close(joined)
	flood.Wait()
	require.Zero(t, entered.Load())
	m.Stop(t, "hub") // it writes what it has counted
	rows := m.Hub.Audit(t, end)
	const reasons = 2 // no such invite, no proof
	require.LessOrEqual(t, len(rows), reasons*(2+int(time.Since(began)/time.Minute)))
	counted := 0
	for _, r := range rows {
		require.Equal(t, "join.refused", r.Action)
		counted++
		if more := regexp.MustCompile(`\((\d+) more since`).FindStringSubmatch(r.Why); more != nil {
			n, err := strconv.Atoi(more[1])
			require.NoError(t, err)
			counted += n - 1
		}
	}
	require.GreaterOrEqual(t, counted, int(refused.Load()), "whoever was refused is counted")
	require.LessOrEqual(t, counted, int(next.Load()))
	t.Logf("%d of %d were refused in so many words, and left %d rows in %s", refused.Load(), next.Load(), len(rows), time.Since(began))
}

func closed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
