package supervisor

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
)

// frame is a message as it is on the socket, made here of what the protocol says
// and not of its code: its length, its kind, and its fields.
func frame(kind byte, fields ...any) []byte {
	var body []byte
	for _, f := range fields {
		switch f := f.(type) {
		case int:
			body = binary.BigEndian.AppendUint64(body, uint64(f))
		case string:
			body = binary.BigEndian.AppendUint32(body, uint32(len(f)))
			body = append(body, f...)
		case []byte:
			body = append(body, f...)
		}
	}
	return append(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), kind), body...)
}

// readFrame reads what frame made.
func readFrame(r io.Reader) (kind byte, body []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	body = make([]byte, binary.BigEndian.Uint32(head[:]))
	_, err = io.ReadFull(r, body)
	return head[4], body, err
}

func proofOf(secret, role, nonce, answer string) string {
	h := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(h, "%s\n%s\n%s", role, nonce, answer)
	return hex.EncodeToString(h.Sum(nil))
}

// challenge says hello to a shim and returns the nonce and the proof that it answers.
func challenge(conn net.Conn) (nonce, proof string) {
	_, _ = conn.Write(frame('h', 5, "n"))
	kind, body, err := readFrame(conn)
	if err != nil || kind != 'p' {
		return "", ""
	}
	n := binary.BigEndian.Uint32(body)
	return string(body[4 : 4+n]), string(body[8+n:])
}

func TestSocketNeedsTheToken(t *testing.T) {
	t.Parallel()
	a, dir := start(t, sh("sleep 600"))
	kill := frame('q', 0, []byte{1}, "by a stranger", 0)
	tests := map[string]func(net.Conn) []byte{
		"a wrong token": func(c net.Conn) []byte {
			nonce, _ := challenge(c)
			return append(frame('p', "", proofOf("wrong "+a.Marker(), "spoke", nonce, "n")), kill...)
		},
		"the token of another attempt": func(c net.Conn) []byte {
			nonce, _ := challenge(c)
			return append(frame('p', "", proofOf(a.saved.Token+" "+newMarker(), "spoke", nonce, "n")), kill...)
		},
		"the shim's own proof": func(c net.Conn) []byte {
			nonce, proof := challenge(c)
			return append(frame('p', nonce, proof), kill...)
		},
		"an empty proof":         func(c net.Conn) []byte { challenge(c); return append(frame('p', "", ""), kill...) },
		"half a proof":           func(c net.Conn) []byte { challenge(c); return frame('p', "", "x")[:7] },
		"a proof of other form":  func(c net.Conn) []byte { challenge(c); return frame('p', 1, 2, 3, "rest") },
		"a request unproven":     func(net.Conn) []byte { return kill },
		"another version":        func(net.Conn) []byte { return frame('h', 99, "n") },
		"a very long hello":      func(net.Conn) []byte { return frame('h', 5, string(make([]byte, 1<<20))) },
		"a length without end":   func(net.Conn) []byte { return []byte("\xff\xff\xff\xffh") },
		"a text without end":     func(net.Conn) []byte { return append(frame('h', 5)[:13], "\xff\xff\xff\xff"...) },
		"an attempt of its own":  func(net.Conn) []byte { return frame('a', "", 0) },
		"what an old spoke says": func(net.Conn) []byte { return []byte(`{"version":1,"nonce":"n"}` + "\n") },
		"nothing":                func(net.Conn) []byte { return nil },
	}
	for name, say := range tests {
		t.Run(name, func(t *testing.T) {
			conn := dial(t, dir)

			_, _ = conn.Write(say(conn)) // what counts is the answer

			require.NoError(t, conn.(*net.UnixConn).CloseWrite())
			require.NoError(t, conn.SetReadDeadline(time.Now().Add(2*attempt.HandshakeTime)))
			for {
				kind, _, err := readFrame(conn)
				if err != nil {
					require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "the shim hangs up")
					break
				}
				require.Equal(t, byte('p'), kind, "an answer to a stranger")
			}
			require.True(t, alive(a.Pid()))
		})
	}
	t.Run("the token", func(t *testing.T) {
		conn := dial(t, dir)
		nonce, proof := challenge(conn)
		require.Equal(t, proofOf(a.saved.Secret(), "shim", "n", nonce), proof)

		_, err := conn.Write(frame('p', "", proofOf(a.saved.Secret(), "spoke", nonce, "n")))

		require.NoError(t, err)
		kind, body, err := readFrame(conn)
		require.NoError(t, err)
		require.Equal(t, byte('r'), kind)
		require.Equal(t, a.Pid(), int(binary.BigEndian.Uint64(body)))
	})
	forged := a.saved
	forged.Token = "forged"
	b, err := json.Marshal(forged)
	require.NoError(t, err)
	write(t, dir, attempt.SpecFile, string(b))
	_, exit, err := Adopt(t.Context(), dir, Known{})
	require.NoError(t, err)
	require.Equal(t, Lost, exit.Outcome)
	require.False(t, alive(a.Pid()), "without a shim to talk to it is ended")
}

// Who has the token and says what no spoke says is hung up on, and nothing else.
func TestAProvenPeerThatSpeaksNonsense(t *testing.T) {
	t.Parallel()
	a, dir := start(t, sh("sleep 600"))
	for name, said := range map[string][]byte{
		"another kind":    frame('x', "{}"),
		"half a request":  frame('q', 0),
		"a longer one":    frame('q', 0, []byte{0}, 0),
		"a strange flag":  frame('q', 0, []byte{2}),
		"too much":        []byte("\x00\x10\x00\x01q"),
		"a second hello":  frame('h', 5, "n"),
		"a cut-off one":   frame('q', 0, []byte{1}, "reason", 0)[:12],
		"bytes of chance": bytes.Repeat([]byte{0xa5}, 100),
	} {
		t.Run(name, func(t *testing.T) {
			conn := dial(t, dir)
			nonce, _ := challenge(conn)
			_, err := conn.Write(frame('p', "", proofOf(a.saved.Secret(), "spoke", nonce, "n")))
			require.NoError(t, err)
			kind, _, err := readFrame(conn)
			require.NoError(t, err)
			require.Equal(t, byte('r'), kind)

			_, _ = conn.Write(said)

			require.NoError(t, conn.(*net.UnixConn).CloseWrite())
			require.NoError(t, conn.SetReadDeadline(time.Now().Add(attempt.HandshakeTime)))
			_, _, err = readFrame(conn)
			require.Error(t, err)
			require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "the shim hangs up")
			require.True(t, alive(a.Pid()))
		})
	}
	require.NoError(t, a.Kill(t.Context(), "it still listens", 0))
}

// An impostor has the socket and the lock, but not the token.
func TestAdoptionOfAnImpostor(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, err := saveSpec(dir, sh("exit 0"))
	require.NoError(t, err)
	lock, err := attempt.TakeLock(dir)
	require.NoError(t, err)
	defer attempt.Release(lock)
	l, err := net.Listen("unix", filepath.Join(dir, attempt.SocketFile))
	require.NoError(t, err)
	defer l.Close()
	var impostor sync.WaitGroup
	impostor.Go(func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		_, _, _ = readFrame(conn)
		_, _ = conn.Write(frame('p', "n", proofOf("guess", "shim", "n", "n")))
		_, _ = conn.Write(frame('r', os.Getpid(), 0, 0, "", "", os.Getpid(), ""))
		_, _, _ = readFrame(conn)
		_ = conn.Close()
	})

	_, exit, err := Adopt(t.Context(), dir, Known{})

	require.NoError(t, err)
	require.Equal(t, NeverStarted, exit.Outcome)
	require.ErrorIs(t, exit.Damage, errLockHeld)
	require.NoError(t, l.Close())
	impostor.Wait()
}

// Who connects and says nothing does not keep a shim whose agent has ended.
func TestASilentPeerKeepsNoShim(t *testing.T) {
	t.Parallel()
	a, dir := start(t, sh("sleep 600"))
	dial(t, dir)

	require.NoError(t, a.Kill(t.Context(), "enough", 0))

	eventually(t, "the end of the shim", func() bool { return Remove(dir) == nil })
}

func dial(t *testing.T, dir string) net.Conn {
	t.Helper()
	d, err := os.Open(dir)
	require.NoError(t, err)
	defer d.Close()
	conn, err := net.Dial("unix", fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), attempt.SocketFile))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}
