package control

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
)

// A program that is made from the document sends the header that is asked for.
func TestTheDocumentNamesTheHeaderOfTheKey(t *testing.T) {
	t.Parallel()
	text, err := api.Document()
	require.NoError(t, err)
	var doc struct {
		Components struct {
			Schemes map[string]struct{ Type, In, Name string } `json:"securitySchemes"`
		}
	}
	require.NoError(t, json.Unmarshal(text, &doc))

	key := doc.Components.Schemes["control_key"]
	require.Equal(t, []string{"apiKey", "header", keyHeader}, []string{key.Type, key.In, key.Name})
}

// keyOf is the key of the instance in dir.
func keyOf(t *testing.T, dir string) string {
	t.Helper()
	key, err := readKey(dir)
	require.NoError(t, err)
	return key
}

// Who is this user, and not below any shim, gets nothing without the key: a child of an agent that has ended its shim is just that.
func TestWhoHasNoKeyIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	serve(t, dir, http.HandlerFunc(echo))()
	before := keyOf(t, dir)
	require.Len(t, before, 64)
	serve(t, dir, http.HandlerFunc(echo))
	key := keyOf(t, dir)
	require.NotEqual(t, before, key, "each start makes another one")
	info, err := os.Stat(KeyFile(dir))
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o600), info.Mode())
	whole, err := os.ReadFile(KeyFile(dir))
	require.NoError(t, err)
	require.Equal(t, "Spawnmesh-Control-Key: "+key+"\n", string(whole), "as curl -H @FILE sends it")
	for sent, why := range map[string]string{
		"":                                           "the request has no key of this instance",
		keyHeader + ": " + before + "\r\n":           "the key of the request is not that of this instance",
		keyHeader + ": \r\n":                         "the key of the request is not that of this instance",
		keyHeader + ": " + key[:63] + "\r\n":         "the key of the request is not that of this instance",
		"Authorization: Bearer " + key + "\r\n":      "the request has no key of this instance",
		strings.Repeat(keyHeader+": "+key+"\r\n", 2): "the key of the request is not that of this instance",
	} {
		resp, p := saysBare(t, dir, "GET /who HTTP/1.1\r\nHost: x\r\n"+sent+"\r\n")

		require.Equal(t, http.StatusForbidden, resp.StatusCode, sent)
		require.Equal(t, string(commands.Forbidden), p.Code)
		require.Equal(t, why, p.Detail)
		require.Contains(t, p.Hint, "send the header in "+filepath.Join(dir, "control.key"))
	}
	require.NoError(t, NewClient(dir).Do(t.Context(), "GET", "/who", nil, new(string)), "the operator reads it")
	require.NoError(t, os.Remove(KeyFile(dir)))
	resp, p := saysBare(t, dir, "GET /who HTTP/1.1\r\nHost: x\r\n\r\n")
	require.Equal(t, http.StatusForbidden, resp.StatusCode)
	require.Equal(t, "stop the instance and start it again: it makes another one", p.Hint)
}

// What an agent with the user of the instance puts in the place of the key holds no command up, and says what to do. Where nothing runs that is said.
func TestAKeyThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		make func(path string) error
		says string
	}{
		"an endless one": {func(path string) error { return os.Symlink("/dev/zero", path) }, "the key of the instance cannot be read"},
		"a pipe":         {func(path string) error { return syscall.Mkfifo(path, 0o600) }, "is not a regular file"},
		"a directory":    {func(path string) error { return os.Mkdir(path, 0o700) }, "is not a regular file"},
		"a long file":    {func(path string) error { return os.WriteFile(path, make([]byte, 1<<20), 0o600) }, "does not hold the key of an instance"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			stop := serve(t, dir, http.HandlerFunc(echo))
			require.NoError(t, os.Remove(KeyFile(dir)))
			require.NoError(t, tt.make(KeyFile(dir)))

			err := NewClient(dir).Do(t.Context(), "POST", "/who", map[string]string{"a": "b"}, nil)

			refused, ok := errors.AsType[*commands.Refused](err)
			require.True(t, ok, "%v", err)
			require.Equal(t, commands.Forbidden, refused.Code)
			require.Contains(t, refused.Why, tt.says)
			require.Contains(t, refused.Hint, "stop the instance and start it again")
			require.False(t, refused.MayBeDone)
			stop()
			require.ErrorContains(t, NewClient(dir).Do(t.Context(), "GET", "/who", nil, nil), "no instance runs in")
		})
	}
}

// A key that its user has closed is named before anything is asked.
func TestAKeyThatIsClosed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, err := makeKey(dir)
	require.NoError(t, err)
	require.NoError(t, os.Chmod(KeyFile(dir), 0))
	require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755))
	if os.Geteuid() == 0 { // root reads it all the same
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		require.NoError(t, syscall.Setfsuid(65534))
		defer func() { _ = syscall.Setfsuid(0) }()
	}

	_, err = readKey(dir)

	refused, ok := errors.AsType[*commands.Refused](err)
	require.True(t, ok, "%v", err)
	require.Contains(t, refused.Hint, "chmod 600 "+KeyFile(dir))
}

// A program of an earlier version sends no key, and is told that it is older.
func TestAnOlderProgramIsToldSo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	serve(t, dir, http.HandlerFunc(echo))
	older := local(dir, Transport(dir).(keyed).Transport)

	err := older.Do(t.Context(), "GET", "/who", nil, nil)

	refused, ok := errors.AsType[*commands.Refused](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, commands.Forbidden, refused.Code)
	require.Equal(t, "the request has no key of this instance", refused.Why)
	require.Contains(t, refused.Hint, "is older than the instance")
}

// An instance of an earlier version makes no key, and asks for none.
func TestAnOlderInstanceIsAskedWithoutAKey(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, err := Listen(t.Context(), dir)
	require.NoError(t, err)
	require.NoError(t, os.Remove(KeyFile(dir)))
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { JSON(w, r.Header.Values(keyHeader)) })}
	go func() { _ = s.Serve(l) }()
	defer s.Close()
	var sent []string

	require.NoError(t, NewClient(dir).Do(t.Context(), "GET", "/", nil, &sent))

	require.Empty(t, sent)
}

// Who has read the key just before the instance was started anew asks again with the new one, body and all.
func TestAKeyThatWasReadBeforeAStartIsReadAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, err := Listen(t.Context(), dir)
	require.NoError(t, err)
	renew := func() {
		var err error
		l.key, err = makeKey(dir)
		require.NoError(t, err)
	}
	asked := 0
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked++; asked == 1 {
			renew() // what is sent with the request was read before
		}
		if err := l.checkKey(r); err != nil {
			Error(w, err)
			return
		}
		echo(w, r)
	})}
	go func() { _ = s.Serve(l) }()
	defer s.Close()
	var out map[string]string

	require.NoError(t, NewClient(dir).Do(t.Context(), "POST", "/", map[string]string{"a": "b"}, &out))

	require.Equal(t, map[string]string{"a": "b"}, out)
	require.Equal(t, 2, asked)
}

// A handler does not see the key, so that nothing that it notes of a request has it.
func TestTheKeyGoesNoFurther(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	serve(t, dir, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { JSON(w, r.Header) }))
	var seen map[string][]string

	require.NoError(t, NewClient(dir).Do(t.Context(), "GET", "/", nil, &seen))

	require.NotContains(t, seen, keyHeader)
}

// Who is refused is hung up on, whether or not the rest of the request comes.
func TestWhoIsRefusedIsHungUpOn(t *testing.T) {
	t.Parallel()
	agent := func(int) (bool, error) { return true, nil }
	for name, who := range map[string]struct {
		agent func(int) (bool, error)
		keyed bool
	}{"without the key": {nil, false}, "an agent that has it": {agent, true}} {
		for _, rest := range []string{"\r\n", "Content-Length: 100\r\n\r\nhalf", "Transfer-Encoding: chunked\r\n\r\n5\r\n"} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				c := dialled(t, who.agent, time.Hour)
				head := "POST /who HTTP/1.1\r\nHost: x\r\n"
				if who.keyed {
					head += keyHeader + ": " + keyOf(t, c.dir) + "\r\n"
				}
				_, err := io.WriteString(c, head+rest)
				require.NoError(t, err)
				resp, err := http.ReadResponse(c.answers, nil)
				require.NoError(t, err)
				require.Equal(t, http.StatusForbidden, resp.StatusCode)
				require.True(t, resp.Close)

				_, err = io.Copy(io.Discard, c.answers)

				require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "it is kept")
			})
		}
	}
}

// Who has asked and asks nothing more is hung up on after a while.
func TestAConnectionThatAsksNothingMoreIsClosed(t *testing.T) {
	t.Parallel()
	c := dialled(t, nil, 50*time.Millisecond)
	_, err := fmt.Fprintf(c, "GET /who HTTP/1.1\r\nHost: x\r\n%s: %s\r\n\r\n", keyHeader, keyOf(t, c.dir))
	require.NoError(t, err)
	resp, err := http.ReadResponse(c.answers, nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.False(t, resp.Close)

	_, err = io.Copy(io.Discard, c.answers)

	require.NoError(t, err)
	require.NotZero(t, idleTime)
}

// Connections that show no key are bounded: beyond that the oldest of them is closed, and none that has shown it.
func TestConnectionsWithoutAKeyAreBounded(t *testing.T) {
	t.Parallel()
	c := dialled(t, nil, time.Hour)
	ask := func(c net.Conn, answers *bufio.Reader, dir string) {
		_, err := fmt.Fprintf(c, "GET /who HTTP/1.1\r\nHost: x\r\n%s: %s\r\n\r\n", keyHeader, keyOf(t, dir))
		require.NoError(t, err)
		resp, err := http.ReadResponse(answers, nil)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, resp.StatusCode)
		_, err = io.Copy(io.Discard, resp.Body)
		require.NoError(t, err)
	}
	ask(c, c.answers, c.dir)
	var list []net.Conn
	for range maxUnshown + 1 {
		next, err := net.Dial("unix", Socket(c.dir))
		require.NoError(t, err)
		t.Cleanup(func() { _ = next.Close() })
		require.NoError(t, next.SetDeadline(time.Now().Add(patience)))
		list = append(list, next)
	}

	_, err := list[0].Read(make([]byte, 1))

	require.Error(t, err)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "the oldest is kept")
	ask(c, c.answers, c.dir)
	for _, kept := range []net.Conn{list[1], list[maxUnshown]} {
		ask(kept, bufio.NewReader(kept), c.dir)
	}
}

// A talk is a connection to an instance, without a client.
type talk struct {
	net.Conn
	answers *bufio.Reader
	dir     string
}

// dialled connects to an instance that serves until the test ends, and closes what is idle for a time.
func dialled(t *testing.T, agent func(int) (bool, error), idle time.Duration) talk {
	t.Helper()
	dir := t.TempDir()
	l, err := Listen(t.Context(), dir)
	require.NoError(t, err)
	s := l.server(http.HandlerFunc(echo), agent, idle)
	s.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	c, err := net.Dial("unix", Socket(dir))
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	return talk{c, bufio.NewReader(c), dir}
}
