package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
)

const patience = 15 * time.Second

// askVar makes the test program a client that asks the instance in the directory
// it names, for the test of what the kernel says about who asks.
const askVar = "SPAWNMESH_TEST_ASK"

func TestMain(m *testing.M) {
	if dir := os.Getenv(askVar); dir != "" {
		var who string
		err := NewClient(dir).Do(context.Background(), "GET", "/who", nil, &who)
		fmt.Printf("%s%s %v", who, commands.CodeOf(err), err)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// serve answers with h in dir until the test ends, or until the function it
// returns is called.
func serve(t *testing.T, dir string, h http.Handler) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l, err := Listen(ctx, dir)
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, l, h, nil, nil, slog.New(slog.DiscardHandler)) }()
	stopped := false
	stop = func() {
		if cancel(); !stopped {
			stopped = true
			require.NoError(t, <-ended)
		}
	}
	t.Cleanup(stop)
	return stop
}

// echo answers GET /who with the caller, and anything else with the body.
func echo(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/who" {
		JSON(w, Caller(r).String())
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		Error(w, commands.Refuse(commands.Validation, "%v", err))
		return
	}
	JSON(w, json.RawMessage(body))
}

func TestARequestAndItsAnswer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	serve(t, dir, http.HandlerFunc(echo))
	var out map[string]string

	err := NewClient(dir).Do(t.Context(), "POST", "/", map[string]string{"a": "b"}, &out)

	require.NoError(t, err)
	require.Equal(t, map[string]string{"a": "b"}, out)
	info, err := os.Stat(Socket(dir))
	require.NoError(t, err)
	require.Equal(t, fs.ModeSocket|0o600, info.Mode())
	var who string
	require.NoError(t, NewClient(dir).Do(t.Context(), "GET", "/who", nil, &who))
	require.Equal(t, fmt.Sprintf("uid:%d", os.Geteuid()), who)
}

// A socket's address holds 107 bytes; data directories are deeper than that.
func TestADeepDirectory(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), strings.Repeat("deep/", 40))
	require.NoError(t, os.MkdirAll(dir, 0o700))
	require.Greater(t, len(Socket(dir)), 200)
	serve(t, dir, http.HandlerFunc(echo))
	var who string

	for range 3 {
		require.NoError(t, NewClient(dir).Do(t.Context(), "GET", "/who", nil, &who))
	}

	require.NotEmpty(t, who)
	info, err := os.Stat(Socket(dir))
	require.NoError(t, err)
	require.Equal(t, fs.ModeSocket|0o600, info.Mode())
}

func TestASocketThatWasLeftBehindIsReplaced(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	serve(t, dir, http.HandlerFunc(echo))()
	c := NewClient(dir)
	err := c.Do(t.Context(), "GET", "/who", nil, nil)
	require.Equal(t, commands.Unreachable, commands.CodeOf(err), "nobody answers at it: %v", err)

	serve(t, dir, http.HandlerFunc(echo))

	require.NoError(t, c.Do(t.Context(), "GET", "/who", nil, nil))
}

// Who was being answered when the instance stops gets the answer; who waits for
// news is told to stop waiting.
func TestAnswersUnderWayAreFinished(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	asked := make(chan struct{})
	stop := serve(t, dir, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(asked)
		<-r.Context().Done() // a long poll
		JSON(w, "as it is now")
	}))
	answered := make(chan error, 1)
	var out string
	go func() { answered <- NewClient(dir).Do(t.Context(), "GET", "/", nil, &out) }()
	<-asked

	stop()

	select {
	case err := <-answered:
		require.NoError(t, err)
	case <-time.After(patience):
		require.FailNow(t, "no answer")
	}
	require.Equal(t, "as it is now", out)
	err := NewClient(dir).Do(t.Context(), "GET", "/", nil, nil)
	require.Equal(t, commands.Unreachable, commands.CodeOf(err))
}

// Who has no answer yet when the instance stops hears that it went away, and not of a defect: those who wait ask again then.
func TestAnAnswerThatTheStopEndsIsCutOff(t *testing.T) {
	t.Parallel()
	for name, ask := range map[string]func(c *Client, ctx context.Context) error{
		"an answer": func(c *Client, ctx context.Context) error { return c.Do(ctx, "POST", "/", nil, nil) },
		"a stream": func(c *Client, ctx context.Context) error {
			return c.Follow(ctx, "/", func(json.RawMessage) error { return nil })
		},
	} {
		dir := t.TempDir()
		asked := make(chan struct{})
		stop := serve(t, dir, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			close(asked)
			<-r.Context().Done()
			Fail(w, r, fmt.Errorf("reading what it was about: %w", r.Context().Err()))
		}))
		answered := make(chan error, 1)
		go func() { answered <- ask(NewClient(dir), t.Context()) }()
		<-asked

		stop()

		err := <-answered
		require.Equal(t, commands.Unreachable, commands.CodeOf(err), "%s: %v", name, err)
	}
	dir := t.TempDir()
	serve(t, dir, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { Fail(w, r, context.Canceled) }))
	require.Equal(t, commands.Internal, commands.CodeOf(NewClient(dir).Do(t.Context(), "GET", "/", nil, nil)), "nothing has ended this one")
}

func TestACallThatDoesNotEndKeepsNobodyFromStopping(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	asked, over := make(chan struct{}), make(chan struct{})
	defer close(over)
	stop := serve(t, dir, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(asked)
		<-over
	}))
	answered := make(chan error, 1)
	go func() { answered <- NewClient(dir).Do(t.Context(), "GET", "/", nil, nil) }()
	<-asked

	stop()

	require.Equal(t, commands.Unreachable, commands.CodeOf(<-answered), "it was cut")
}

// Two who stop listening do not stop the one who answers.
func TestACallerWhoLeaves(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	asked, left := make(chan struct{}), make(chan struct{})
	serve(t, dir, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/who" {
			echo(w, r)
			return
		}
		close(asked)
		<-r.Context().Done()
		close(left)
	}))
	ctx, leave := context.WithCancel(t.Context())
	answered := make(chan error, 1)
	go func() { answered <- NewClient(dir).Do(ctx, "GET", "/", nil, nil) }()
	<-asked

	leave()

	require.ErrorIs(t, <-answered, context.Canceled)
	select {
	case <-left:
	case <-time.After(patience):
		require.FailNow(t, "the handler was not told")
	}
	require.NoError(t, NewClient(dir).Do(t.Context(), "GET", "/who", nil, nil))
}

func TestABodyHasALimit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	serve(t, dir, http.HandlerFunc(echo))
	c := NewClient(dir)
	var out string
	require.NoError(t, c.Do(t.Context(), "POST", "/", strings.Repeat("x", 512<<10-2-len("\n")), &out))

	err := c.Do(t.Context(), "POST", "/", strings.Repeat("x", 512<<10-1), nil)

	require.Equal(t, commands.Validation, commands.CodeOf(err), "%v", err)
	require.ErrorContains(t, err, "too large")
}

// What a handler refuses arrives as it was said, under the same code.
func TestErrorsCrossTheSocket(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var answer error
	serve(t, dir, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { Error(w, answer) }))
	c := NewClient(dir)
	codes := map[commands.Code]int{
		commands.NotFound: 404, commands.Validation: 400, commands.BadEnv: 400, commands.BadPath: 400, commands.Ambiguous: 400, commands.Forbidden: 403,
		commands.StoreDown: 503, commands.Internal: 500, commands.Conflict: 409, commands.NoSpoke: 409, commands.Idempotency: 409, "CONN_STATE": 409,
	}
	for code, want := range codes {
		answer = fmt.Errorf("doing it: %w", &commands.Refused{Code: code, Why: "because <of> it", Hint: "do that", Err: errors.New("inner")})
		require.Equal(t, want, status(code), "%s", code)

		err := c.Do(t.Context(), "GET", "/", nil, nil)

		require.Equal(t, &commands.Refused{Code: code, Why: "because <of> it", Hint: "do that"}, err)
	}

	answer = errors.New("the disk is on fire")
	err := c.Do(t.Context(), "GET", "/", nil, nil)
	require.Equal(t, &commands.Refused{Code: commands.Internal, Why: "the disk is on fire"}, err)
}

func TestWhatIsNoAnswer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	m := http.NewServeMux()
	m.HandleFunc("/half", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"a":`)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	m.HandleFunc("/stream", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "id: 1\ndata: {\"a\":1}\n\n: \n\ndata: {\"a\":2}\n\ndata: {")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	m.HandleFunc("/short", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "data: {}\n\n") })
	m.HandleFunc("/whole", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "data: {}\n\nevent: end\ndata: {}\n\n")
	})
	m.HandleFunc("/text", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") })
	m.HandleFunc("/teapot", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "short and stout", http.StatusTeapot) })
	serve(t, dir, m)
	c := NewClient(dir)
	var out any

	err := c.Do(t.Context(), "GET", "/half", nil, &out)
	require.Equal(t, commands.Unreachable, commands.CodeOf(err), "an instance that dies: %v", err)
	seen := 0
	err = c.Follow(t.Context(), "/stream", func(json.RawMessage) error { seen++; return nil })
	require.Equal(t, commands.Unreachable, commands.CodeOf(err), "one that dies later: %v", err)
	require.Equal(t, 2, seen)
	err = c.Follow(t.Context(), "/stream", func(json.RawMessage) error { return io.ErrShortWrite })
	require.ErrorIs(t, err, io.ErrShortWrite)
	require.Equal(t, commands.Internal, commands.CodeOf(c.Do(t.Context(), "GET", "/text", nil, &out)))
	require.ErrorContains(t, c.Do(t.Context(), "GET", "/teapot", nil, &out), "418")
	require.Equal(t, commands.Unreachable, commands.CodeOf(c.Follow(t.Context(), "/short", func(json.RawMessage) error { return nil })), "it was cut off")
	require.NoError(t, c.Follow(t.Context(), "/whole", func(json.RawMessage) error { return nil }))
}

func TestNobodyIsThere(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		holds []string
		run   []string
	}{"nothing": {nil, []string{"hub", "run"}}, "a spoke": {[]string{"keys"}, []string{"spoke", "run"}}, "a hub": {[]string{"keys", "nats"}, []string{"hub", "run"}}}
	for name, tt := range tests {
		dir := t.TempDir()
		for _, name := range tt.holds {
			require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o700))
		}

		err := NewClient(dir).Do(t.Context(), "GET", "/", nil, nil)

		refused, ok := errors.AsType[*commands.Refused](err)
		require.True(t, ok)
		require.Equal(t, commands.Unreachable, refused.Code)
		require.Equal(t, "no instance runs in "+dir, refused.Why)
		require.Equal(t, tt.run, refused.Run, name)
	}
}

// Who has the data directory and does not serve is starting, or stopping; a command
// has it for a moment only.
func TestSomebodyIsThereAndDoesNotServe(t *testing.T) {
	t.Parallel()
	ended := exec.Command("true")
	require.NoError(t, ended.Run())
	note := func(pid int, span string) string {
		return fmt.Sprintf("pid %d since 2026-11-22T08:57:21Z%s\n", pid, span)
	}
	tests := map[string]struct {
		note     string
		starting bool
	}{"an instance": {note(os.Getpid(), ""), true}, "one command": {note(os.Getpid(), " briefly"), false}, "one that was killed": {note(ended.Process.Pid, ""), false}, "one that has let go": {"", false}}
	for name, tt := range tests {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "instance.lock"), []byte(tt.note), 0o600))

		err := NewClient(dir).Do(t.Context(), "GET", "/", nil, nil)

		require.Equal(t, commands.Unreachable, commands.CodeOf(err), name)
		require.Equal(t, tt.starting, strings.Contains(err.Error(), "does not serve yet, or no more"), name)
		require.Equal(t, !tt.starting, strings.Contains(err.Error(), "no instance runs in "+dir), name)
	}
}

func TestServingEndsWithItsListener(t *testing.T) {
	t.Parallel()
	l, err := Listen(t.Context(), t.TempDir())
	require.NoError(t, err)
	require.NoError(t, l.Close())

	err = Serve(t.Context(), l, http.HandlerFunc(echo), nil, nil, slog.New(slog.DiscardHandler))

	require.ErrorIs(t, err, net.ErrClosed)
}

// The kernel says who asks: another user is refused even where the modes let
// them get as far as asking. Only root can become another user; everybody else
// shows that they are allowed what is theirs.
func TestAnotherUserIsRefused(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "spawnmesh-local-")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	serve(t, dir, http.HandlerFunc(echo))
	program := filepath.Join(dir, "asks")
	self, err := os.ReadFile("/proc/self/exe")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(program, self, 0o755))
	ask := func(uid int) string {
		c := exec.CommandContext(t.Context(), program)
		c.Dir, c.Env = dir, append(os.Environ(), askVar+"="+dir, "GORACE=atexit_sleep_ms=0")
		if uid != os.Geteuid() {
			c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
		}
		out, err := c.Output()
		require.NoError(t, err)
		return string(out)
	}
	require.Equal(t, fmt.Sprintf("uid:%d <nil>", os.Geteuid()), ask(os.Geteuid()))
	if os.Geteuid() != 0 {
		return
	}

	const nobody = 65534
	require.Equal(t, "FORBIDDEN the instance in "+dir+" belongs to another user", ask(nobody), "by the socket's mode")
	require.NoError(t, os.Chmod(Socket(dir), 0o666))
	require.Contains(t, ask(nobody), "FORBIDDEN the request has no key of this instance", "it cannot read that")
	require.NoError(t, os.Chmod(KeyFile(dir), 0o644))
	require.Equal(t, "FORBIDDEN only the user that runs this instance may control it", ask(nobody), "by the kernel's word")
}

// An answer that does not end holds up a stop, but not one that is hurried.
func TestAHurriedStopWaitsForNoAnswer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, err := Listen(t.Context(), dir)
	require.NoError(t, err)
	asked, release, hurry := make(chan struct{}), make(chan struct{}), make(chan struct{})
	s := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(asked)
		<-release
	})}
	defer close(release)
	go func() { _ = s.Serve(l) }()
	go func() { _ = NewClient(dir).Do(context.WithoutCancel(t.Context()), "GET", "/", nil, nil) }()
	<-asked
	ended := make(chan error, 1)
	go func() { ended <- shut(t.Context(), s, time.Hour, hurry, slog.New(slog.DiscardHandler)) }()

	close(hurry)

	select {
	case err := <-ended:
		require.NoError(t, err)
	case <-time.After(patience):
		require.FailNow(t, "it waits")
	}
}

// An instance that does not run is asked by the user of this process.
func TestTheCallerWithinIsThisUser(t *testing.T) {
	t.Parallel()
	c, stop := Within(t.Context(), t.TempDir(), http.HandlerFunc(echo))
	defer stop()
	var who string

	require.NoError(t, c.Do(t.Context(), "GET", "/who", nil, &who))

	require.Equal(t, fmt.Sprintf("uid:%d", os.Geteuid()), who)
}

// Where an instance cannot look whether an agent asks, nobody is served, and nobody is called an agent.
func TestWhoCannotBeToldFromAnAgentIsToldSo(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err      error
		why, fix string
	}{
		"no files":  {&os.PathError{Op: "open", Path: "/proc/1/stat", Err: syscall.EMFILE}, "too many open files", "raise the limit, or end it"},
		"no memory": {syscall.ENOMEM, "cannot allocate memory", "ask again, or end it"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			l, err := Listen(t.Context(), dir)
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			asks := 0
			asked := func(pid int) (bool, error) {
				if asks++; asks > 1 {
					return false, nil
				}
				return true, c.err
			}
			go func() { ended <- Serve(ctx, l, http.HandlerFunc(echo), asked, nil, slog.New(slog.DiscardHandler)) }()
			client := NewClient(dir)

			err = client.Do(t.Context(), "GET", "/who", nil, nil)

			refused, ok := errors.AsType[*commands.Refused](err)
			require.True(t, ok, "%v", err)
			require.Equal(t, commands.NotReady, refused.Code)
			require.Equal(t, "this instance cannot tell now who asks: "+c.why, refused.Why)
			require.Equal(t, c.fix, refused.Hint)
			require.Equal(t, http.StatusServiceUnavailable, ProblemOf(err).Status)
			require.NoError(t, client.Do(t.Context(), "GET", "/who", nil, new(string)), "who asks again is looked at again")
			cancel()
			require.NoError(t, <-ended)
		})
	}
}

// full is a listener of a process that has no open files left for a while.
type full struct {
	net.Listener
	fails int
}

func (l *full) Accept() (net.Conn, error) {
	if l.fails--; l.fails >= 0 {
		return nil, &net.OpError{Op: "accept", Net: "unix", Addr: l.Addr(), Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	}
	return l.Listener.Accept()
}

// An instance that lets nobody in says why, a few times, and serves once it can.
func TestWhatKeepsEverybodyOutIsSaid(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, err := Listen(t.Context(), dir)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var said bytes.Buffer
	ended := make(chan error, 1)
	go func() {
		ended <- Serve(ctx, &Local{Listener: &full{l, 5}, dir: dir, key: l.key}, http.HandlerFunc(echo), nil, nil, slog.New(slog.NewTextHandler(&said, nil)))
	}()

	require.NoError(t, NewClient(dir).Do(t.Context(), "GET", "/who", nil, nil))
	cancel()
	require.NoError(t, <-ended)

	require.Equal(t, 3, strings.Count(said.String(), `level=WARN msg="no connection can be accepted; it is tried again"`), "%s", &said)
	require.Contains(t, said.String(), "too many open files")
}
