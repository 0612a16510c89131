package control

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
)

// rude serves the API, of which nothing is asked that exists, and slow answers, to who is this user.
func rude(t *testing.T, bodyTime time.Duration, slow http.HandlerFunc) (dir string) {
	t.Helper()
	dir = t.TempDir()
	l, err := Listen(t.Context(), dir)
	require.NoError(t, err)
	serve := api.Serve(struct{ api.StrictServerInterface }{}, api.Plain{}, May, func(w http.ResponseWriter, _ *http.Request, err error) { Error(w, err) })
	mux := http.NewServeMux()
	mux.Handle("/", serve)
	if slow != nil {
		mux.Handle("/slow", slow)
	}
	s := &http.Server{Handler: l.allowed(mux, bodyTime)}
	s.ConnContext = func(ctx context.Context, c net.Conn) context.Context { return identify(ctx, c, nil) }
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	return dir
}

// says sends text, with the key of the instance in dir, and reads the answer.
func says(t *testing.T, dir, text string) (*http.Response, api.Problem) {
	t.Helper()
	return saysBare(t, dir, strings.Replace(text, "\r\n", "\r\n"+keyHeader+": "+keyOf(t, dir)+"\r\n", 1))
}

// saysBare sends text as it stands and reads the answer.
func saysBare(t *testing.T, dir, text string) (*http.Response, api.Problem) {
	t.Helper()
	c, err := net.Dial("unix", Socket(dir))
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	_, err = io.WriteString(c, text)
	require.NoError(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err, "%.100s", text)
	defer resp.Body.Close()
	var p api.Problem
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&p))
	return resp, p
}

// What cannot be asked is told apart by its code, and who asks with another method hears which there are.
func TestWhatCannotBeAskedHasACode(t *testing.T) {
	t.Parallel()
	dir := rude(t, time.Minute, nil)
	for text, want := range map[string]api.Problem{
		"DELETE /api/v1/keys HTTP/1.1\r\nHost: x\r\n\r\n":                                                                                                {Status: 405, Code: "METHOD_NOT_ALLOWED", Title: "The path takes other methods"},
		"POST /api/v1/keys/rotate HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}":                                        {Status: 415, Code: "UNSUPPORTED_MEDIA_TYPE", Title: "The body is of another type"},
		"POST /api/v1/keys/rotate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}":        {Status: 415, Code: "UNSUPPORTED_MEDIA_TYPE", Title: "The body is of another type"},
		"GET /api/v1/nothing HTTP/1.1\r\nHost: x\r\n\r\n":                                                                                                {Status: 404, Code: "NOT_FOUND", Title: "There is no such thing"},
		"POST /api/v1/keys/rotate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 600000\r\n\r\n" + strings.Repeat(" ", 600000): {Status: 413, Code: "PAYLOAD_TOO_LARGE", Title: "The body is too large"},
	} {
		resp, p := says(t, dir, text)

		require.Equal(t, want, api.Problem{Status: p.Status, Code: p.Code, Title: p.Title})
		require.Equal(t, want.Status, resp.StatusCode)
		require.Equal(t, want.Status == 405, resp.Header.Get("Allow") == "GET, HEAD", resp.Header)
	}
	for of, code := range inputCodes {
		require.Equal(t, of, status(code))
	}
}

// Whatever is asked with whatever method, it is there or it is not: nobody is sent elsewhere.
func TestNobodyIsSentElsewhere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, err := Listen(t.Context(), dir)
	require.NoError(t, err)
	h := api.Serve(struct{ api.StrictServerInterface }{}, api.Plain{}, May, func(w http.ResponseWriter, _ *http.Request, err error) { Error(w, err) })
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, l, h, nil, nil, slog.New(slog.DiscardHandler)) }()
	for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE", "BREW"} {
		for _, path := range []string{"*", "/", "//", "//keys", "/*", "/%2A", "/api/v1", "/api/v1/", "/api/v1/keys/", "/api/v1//keys", "/api/v1/./keys", "/api/v1/x/../keys", "/..", "http://x", "http://x/api/v1/../keys", "http:keys"} {
			if method == "CONNECT" && strings.HasPrefix(path, "http:") {
				continue // it cannot be read
			}
			resp, p := says(t, dir, method+" "+path+" HTTP/1.1\r\nHost: x\r\n\r\n")

			require.Equal(t, http.StatusNotFound, resp.StatusCode, "%s %s", method, path)
			require.Equal(t, string(commands.NotFound), p.Code, "%s %s", method, path)
			require.Empty(t, resp.Header.Get("Location"), "%s %s", method, path)
		}
	}
	stop()
	require.NoError(t, <-ended)
}

// A body that does not come to its end is given up, whether or not anybody wants it.
func TestABodyThatStopsHalfWayIsGivenUp(t *testing.T) {
	t.Parallel()
	dir := rude(t, 200*time.Millisecond, nil)
	codes := map[int]commands.Code{408: commands.RequestTimeout, 404: commands.NotFound}
	for path, want := range map[string]int{"POST /api/v1/keys/rotate": 408, "POST /api/v1/nothing": 404, "GET /api/v1/nothing": 404} {
		for _, length := range []string{"Content-Length: 100", "Transfer-Encoding: chunked"} {
			resp, p := says(t, dir, fmt.Sprintf("%s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n%s\r\n\r\n5\r\n", path, length))

			require.Equal(t, want, resp.StatusCode, "%s: %s", path, p.Detail)
			require.Equal(t, string(codes[want]), p.Code)
			require.True(t, resp.Close, "what follows on this connection is not known to be a request")
		}
	}
}

// The time of a body is over with the body: an answer goes on for longer.
func TestAnAnswerIsNotCutOffByTheTimeOfABody(t *testing.T) {
	t.Parallel()
	const bodyTime = 100 * time.Millisecond
	dir := rude(t, bodyTime, func(w http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		select {
		case <-r.Context().Done():
			err = r.Context().Err()
		case <-time.After(5 * bodyTime):
		}
		JSON(w, api.Problem{Detail: fmt.Sprint(err)})
	})
	for _, body := range []string{"Content-Length: 2\r\n\r\n{}", "\r\n", "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"} {
		_, p := says(t, dir, "POST /slow HTTP/1.1\r\nHost: x\r\n"+body)

		require.Equal(t, "<nil>", p.Detail)
	}
}

// A body of any length may take as long as it comes on, and no longer.
func TestABodyThatComesOnIsWaitedFor(t *testing.T) {
	t.Parallel()
	const within = 300 * time.Millisecond
	dir := t.TempDir()
	l, err := Listen(t.Context(), dir)
	require.NoError(t, err)
	came := make(chan string, 1)
	s := &http.Server{Handler: l.allowed(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		came <- fmt.Sprint(n, " ", errors.Is(err, os.ErrDeadlineExceeded))
	}), within)}
	s.ConnContext = func(ctx context.Context, c net.Conn) context.Context { return identify(ctx, c, nil) }
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	send := func(pieces, size int) string {
		c, err := net.Dial("unix", Socket(dir))
		require.NoError(t, err)
		defer c.Close()
		_, err = fmt.Fprintf(c, "POST /api/v1/blobs HTTP/1.1\r\nHost: x\r\n%s: %s\r\nContent-Length: %d\r\n\r\n", keyHeader, keyOf(t, dir), pieces*size)
		require.NoError(t, err)
		for range pieces {
			time.Sleep(within / 3)
			if _, err := c.Write(make([]byte, size)); err != nil {
				break // it was given up
			}
		}
		return <-came
	}

	require.Equal(t, fmt.Sprint(12*leastFlow, " false"), send(12, leastFlow), "four times as long")
	require.Regexp(t, ` true$`, send(12, 1), "a byte now and then")
}
