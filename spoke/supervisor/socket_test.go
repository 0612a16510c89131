package supervisor

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSocketNeedsTheToken(t *testing.T) {
	t.Parallel()
	a, dir := start(t, sh("sleep 600"))
	tests := map[string]func(*shimConn) error{
		"a wrong token": func(w *shimConn) error {
			return answer(w, func(p *proof) { p.MAC = mac("wrong", "spoke", p.Nonce, "n") })
		},
		"a request unproven":   func(w *shimConn) error { return w.send(request{Kill: &killOrder{}}) },
		"another version":      func(w *shimConn) error { return w.send(hello{Version: 99}) },
		"a very long hello":    func(w *shimConn) error { return w.send(hello{Version: 1, Nonce: strings.Repeat("x", 1<<20)}) },
		"the shim's own proof": func(w *shimConn) error { return answer(w, func(*proof) {}) },
		"not JSON":             func(w *shimConn) error { _, err := w.conn.Write([]byte("KILL\n")); return err },
	}
	for name, say := range tests {
		t.Run(name, func(t *testing.T) {
			conn := dial(t, dir)
			w := newShimConn(conn)

			_ = say(w) // what counts is the answer

			var r report
			require.NoError(t, conn.SetReadDeadline(time.Now().Add(2*handshakeTime)))
			for w.receive(&r) == nil {
				require.Zero(t, r, "an answer to a stranger")
			}
			require.True(t, alive(a.Pid()))
		})
	}
	forged := a.saved
	forged.Token = "forged"
	b, err := json.Marshal(forged)
	require.NoError(t, err)
	write(t, dir, specFile, string(b))
	_, exit, err := Adopt(t.Context(), dir, Known{})
	require.NoError(t, err)
	require.Equal(t, Lost, exit.Outcome)
	require.False(t, alive(a.Pid()), "without a shim to talk to it is ended")
}

// Whoever has the token and never ends his message costs a bounded amount of
// memory.
func TestMessageWithoutEnd(t *testing.T) {
	t.Parallel()
	ours, theirs := net.Pipe()
	var writer sync.WaitGroup
	writer.Go(func() {
		_, _ = theirs.Write([]byte(`{"exit":{"reason":"`))
		piece := bytes.Repeat([]byte("x"), 1<<20)
		for range 2 * maxMessage / len(piece) {
			if _, err := theirs.Write(piece); err != nil {
				return
			}
		}
	})

	err := newShimConn(ours).receive(new(report))

	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.NoError(t, ours.Close())
	writer.Wait()
}

// answer returns the shim's challenge, changed.
func answer(w *shimConn, change func(*proof)) error {
	if err := w.send(hello{Version: protocolVersion, Nonce: "n"}); err != nil {
		return err
	}
	var theirs proof
	if err := w.receive(&theirs); err != nil {
		return err
	}
	change(&theirs)
	return w.send(theirs)
}

// An impostor has the socket and the lock, but not the token.
func TestAdoptionOfAnImpostor(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, err := saveSpec(dir, sh("exit 0"))
	require.NoError(t, err)
	lock, err := takeLock(dir)
	require.NoError(t, err)
	defer release(lock)
	l, err := net.Listen("unix", filepath.Join(dir, socketFile))
	require.NoError(t, err)
	defer l.Close()
	var impostor sync.WaitGroup
	impostor.Go(func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		w := newShimConn(conn)
		var theirs hello
		_ = w.receive(&theirs)
		_ = w.send(proof{Nonce: theirs.Nonce, MAC: mac("guess", "shim", theirs.Nonce, theirs.Nonce)})
		_ = w.send(report{Running: &running{Pid: os.Getpid()}})
		_ = w.receive(new(proof))
		_ = w.close()
	})

	_, exit, err := Adopt(t.Context(), dir, Known{})

	require.NoError(t, err)
	require.Equal(t, NeverStarted, exit.Outcome)
	require.ErrorIs(t, exit.Damage, errLockHeld)
	require.NoError(t, l.Close())
	impostor.Wait()
}

func dial(t *testing.T, dir string) net.Conn {
	t.Helper()
	d, err := os.Open(dir)
	require.NoError(t, err)
	defer d.Close()
	conn, err := net.Dial("unix", fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), socketFile))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}
