package door

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// opened is a door that asks no database for what these tests ask.
func opened(t *testing.T) (d *Door, dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "door")
	d, err := Open(dir, 0, Room{Heard: func() {}})
	require.NoError(t, err)
	t.Cleanup(d.Close)
	return d, dir
}

// dial connects to a door; nil where the line before it is full.
func dial(t *testing.T, dir string) net.Conn {
	t.Helper()
	c := &Client{Socket: filepath.Join(dir, Socket)}
	conn, err := c.dial(t.Context(), "", "")
	if err != nil {
		return nil
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func request(token string) string {
	return fmt.Sprintf("GET /v1/nothing HTTP/1.1\r\nHost: spoke\r\nAuthorization: Bearer %s\r\n\r\n", token)
}

// answered reads one answer.
func answered(t *testing.T, conn net.Conn) {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, resp.Body)
	require.NoError(t, err)
}

// Whatever an agent sends, on as many connections as it may have, is answered at the rate of its door and no more often,
// be it with the token or without.
func TestAFloodIsAnsweredAtTheRate(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		known       bool
		burst, rate int // of the door, for such requests
	}{
		"with the token":    {true, burst, maxRequests},
		"without the token": {false, wrongBurst, maxWrong},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, dir := opened(t)
			token := "x"
			if x.known {
				token = readToken(filepath.Join(dir, Token))
			}
			answers := make(chan int, 1<<20)
			began := time.Now()
			for range maxConns {
				conn := dial(t, dir)
				require.NotNil(t, conn)
				go func() {
					for err := error(nil); err == nil; {
						_, err = io.WriteString(conn, request(token))
					}
				}()
				go func() {
					for from := bufio.NewReader(conn); ; {
						resp, err := http.ReadResponse(from, nil)
						if err != nil {
							return
						}
						_, _ = io.Copy(io.Discard, resp.Body)
						answers <- resp.StatusCode
					}
				}()
			}
			more := 2 * x.rate // than the first ones
			for range x.burst + more {
				want := http.StatusUnauthorized
				if x.known {
					want = http.StatusNotFound
				}
				require.Equal(t, want, <-answers)
			}

			require.Greater(t, time.Since(began), time.Duration(more)*time.Second/time.Duration(x.rate)-10*time.Millisecond)
			if !x.known {
				require.InDelta(t, burst, d.rate.Tokens(), 0, "they take nothing of what the agent may ask")
			}
		})
	}
}

// Connections that are made and closed again cost no more than so many a second.
func TestConnectingInALoopIsBounded(t *testing.T) {
	t.Parallel()
	_, dir := opened(t)
	more := 2 * maxDials
	began := time.Now()
	for n := 0; n < dialBurst+maxConns+1+more; {
		conn := dial(t, dir)
		if conn == nil { // as many wait as may
			time.Sleep(time.Millisecond)
			continue
		}
		require.NoError(t, conn.Close())
		n++
	}

	require.Greater(t, time.Since(began), time.Duration(more)*time.Second/maxDials-10*time.Millisecond)
}

// Who connects when all places are taken gets one when it is free.
func TestAConnectionWaitsForAPlace(t *testing.T) {
	t.Parallel()
	_, dir := opened(t)
	var conns []net.Conn
	for range maxConns + 1 {
		conn := dial(t, dir)
		require.NotNil(t, conn)
		_, err := io.WriteString(conn, request("x"))
		require.NoError(t, err)
		conns = append(conns, conn)
	}
	answered(t, conns[0])
	require.NoError(t, conns[0].Close())

	answered(t, conns[maxConns])
}
