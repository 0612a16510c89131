package control

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
)

// foreign returns a client of something that answers with h, and is patient for that long.
func foreign(t *testing.T, within time.Duration, h http.HandlerFunc) *Client {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return Remote{Context: "lab", URL: s.URL, Token: "smt_x"}.client(within)
}

// What is no success of an instance is none here, however it is asked.
func TestNothingButASuccessIsOne(t *testing.T) {
	t.Parallel()
	for _, status := range []int{300, 302, 304, 307, 404, 500} {
		c := foreign(t, patience, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Location", "https://login.test/\u202e")
			w.WriteHeader(status)
			if status != http.StatusNotModified {
				_, _ = io.WriteString(w, `{"items":[]}`)
			}
		})
		_, generated := Answer(c.API().ListTokensWithResponse(t.Context()))
		for _, err := range []error{c.Do(t.Context(), "POST", "/api/v1/tokens", nil, nil), generated} {
			require.ErrorContains(t, err, fmt.Sprintf("/api/v1/tokens answered %d", status))
			require.ErrorContains(t, err, " to https://login.test/")
			require.NotContains(t, err.Error(), "\u202e")
			require.Contains(t, refused(t, err).Hint, "--url of the context lab")
		}
	}
}

func refused(t *testing.T, err error) *commands.Refused {
	t.Helper()
	var r *commands.Refused
	require.ErrorAs(t, err, &r)
	return r
}

// What says nothing is left after a while.
func TestWhatSaysNothingIsLeft(t *testing.T) {
	t.Parallel()
	c := foreign(t, 100*time.Millisecond, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })

	ctx, done := context.WithTimeout(t.Context(), patience)
	defer done()

	err := c.Do(ctx, "GET", "/api/v1/instance", nil, nil)

	require.NoError(t, ctx.Err(), "the caller need not end it")
	require.Equal(t, commands.Unreachable, commands.CodeOf(err))
	require.ErrorContains(t, err, "does not answer in time")
	require.False(t, refused(t, err).MayBeDone, "nothing was asked to be done")
	require.True(t, refused(t, c.Do(ctx, "POST", "/api/v1/tasks", nil, nil)).MayBeDone)
}

// Whoever asked for something and got no answer reads that it may have been done, and what to do next, on another machine too.
func TestWhatWasSentMayBeDone(t *testing.T) {
	t.Parallel()
	broken := foreign(t, patience, func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) })
	silent := foreign(t, 100*time.Millisecond, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	for want, c := range map[string]*Client{"does not answer: ": broken, "does not answer in time": silent} {
		r := refused(t, c.Do(t.Context(), "POST", "/api/v1/tasks", nil, nil))
		require.True(t, r.MayBeDone)
		require.Contains(t, r.Error(), want)
		require.Regexp(t, `; what was asked may have been done all the same$`, r.Error())
		require.Regexp(t, `^is it running, .*\? look once it answers; type the line again if nothing was done$`, r.Hint)

		r = refused(t, c.Do(t.Context(), "GET", "/api/v1/tasks", nil, nil))
		require.NotContains(t, r.Error()+r.Hint, "done")
	}
}

// Who was not let in has asked nothing.
func TestWhatWasNotSentIsNotDone(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	remote := NewRemoteClient(Remote{URL: "https://" + l.Addr().String(), Context: "c"})

	err = remote.Do(t.Context(), "POST", "/api/v1/tasks", nil, nil)

	require.Equal(t, commands.Unreachable, commands.CodeOf(err))
	require.False(t, refused(t, err).MayBeDone)

	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	remote = NewRemoteClient(Remote{URL: strings.Replace(plain.URL, "http:", "https:", 1), Context: "c"})

	err = remote.Do(t.Context(), "POST", "/api/v1/tasks", nil, nil)

	require.ErrorContains(t, err, "does not speak TLS")
	require.False(t, refused(t, err).MayBeDone)
}

// An answer without an end is not read for ever.
func TestAnAnswerWithoutAnEndIsLeft(t *testing.T) {
	t.Parallel()
	endless := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"items":[`)
		for part := strings.Repeat(" ", 1<<20); ; {
			if _, err := io.WriteString(w, part); err != nil {
				return
			}
		}
	}
	c := foreign(t, patience, endless)

	_, err := Answer(c.API().ListTokensWithResponse(t.Context()))

	require.ErrorContains(t, err, "larger than 64 MiB")
	require.ErrorContains(t, c.Do(t.Context(), "GET", "/api/v1/tokens", nil, nil), "larger than 64 MiB")
}

// A problem may be anybody's: it has one line, and nothing that a terminal obeys.
func TestAProblemHasOneLine(t *testing.T) {
	t.Parallel()
	r := refused(t, Refused(&api.Problem{Code: "NOT\nFOUND", Detail: "a\r\nb\x1b[2Jc\u202ed", Hint: "e\u2028f\x00"}))

	require.Equal(t, &commands.Refused{Code: "NOT FOUND", Why: "a  b·[2Jc·d", Hint: "e f·"}, r)
}
