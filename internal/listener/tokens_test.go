package listener_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
	"github.com/spawnmesh/spawnmesh/internal/scale"
	madetoken "github.com/spawnmesh/spawnmesh/internal/token"
)

// What is no token, or not one of this hub, lets nobody in, whatever it is; what is mistyped is told apart from what is not
// known; and nothing of it is kept, but that it was so.
func TestWhatIsNoTokenLetsNobodyIn(t *testing.T) {
	t.Parallel()
	m := start(t)
	good := token(t, m, "good", api.Owner, api.Everywhere).Token
	other := madetoken.New()
	revoked := token(t, m, "revoked", api.Owner, api.Everywhere).Token
	m.Hub.Do(t, "POST", api.Base+"/tokens/revoked/revoke", api.Reason{}, nil)
	expired := token(t, m, "expired", api.Owner, api.Everywhere).Token
	_, err := m.Hub.SQL.Exec(t.Context(), `UPDATE tokens SET expires_at = clock_timestamp() - interval '1 h' WHERE name = 'expired'`)
	require.NoError(t, err)
	held := token(t, m, "held", api.Owner, api.Everywhere).Token
	_, err = m.Hub.SQL.Exec(t.Context(), `UPDATE tokens SET restored = true WHERE name = 'held'`)
	require.NoError(t, err)
	last := good[len(good)-1:]
	changed := map[string]string{"0": "1"}[last]
	if changed == "" {
		changed = "0"
	}
	header := func(values ...string) func(*http.Request) {
		return func(r *http.Request) { r.Header["Authorization"] = values }
	}
	tests := map[string]struct {
		change func(*http.Request)
		says   string
	}{
		"none":                  {nil, "GET /api/v1/instance needs a token"},
		"empty":                 {header("Bearer "), "it was cut or mistyped"},
		"short":                 {header("Bearer " + good[:20]), "it was cut or mistyped"},
		"the last letter wrong": {header("Bearer " + good[:len(good)-1] + changed), "it was cut or mistyped"},
		"in capitals":           {header("Bearer " + strings.ToUpper(good)), "it was cut or mistyped"},
		"in small letters":      {header("Bearer " + strings.ToLower(good)), "it was cut or mistyped"},
		"of another alphabet":   {header("Bearer smt_" + strings.Repeat("ä", 47)), "it was cut or mistyped"},
		"of 8 KiB":              {header("Bearer " + strings.Repeat("smt_", 2<<10)), "it was cut or mistyped"},
		"of another hub":        {header("Bearer " + other.Text()), "the token is not known here"},
		"twice":                 {header("Bearer "+good, "Bearer "+good), "does not hold one token"},
		"with a name":           {header("Basic " + good), "does not hold one token"},
		"in the address":        {func(r *http.Request) { r.URL.RawQuery = url.Values{"access_token": {good}}.Encode() }, "needs a token"},
		"revoked":               {header("Bearer " + revoked), "the token revoked was revoked"},
		"expired":               {header("Bearer " + expired), "the token expired has expired"},
		"restored":              {header("Bearer " + held), "the token held is from before this instance was restored from a backup"},
	}
	n := byte(10)
	for name, tt := range tests {
		p := asks(t, m, "", n)
		p.change = tt.change
		status, code, said := p.ask(t, "GET", api.Base+"/instance", "")
		require.Equal(t, 401, status, name)
		require.Equal(t, "UNAUTHENTICATED", code, name)
		require.Contains(t, said, tt.says, name)
		n++
	}
	meshtest.Await(t, "the audit", func() bool {
		return len(m.Hub.Pairs(t, `SELECT object, why FROM audit WHERE action = 'token.refused' AND actor = 'anonymous' AND code = 'UNAUTHENTICATED'`)) == len(tests)-2
	})
	kept := everythingKept(t, m)
	for _, text := range []string{good, other.Text(), revoked, expired} {
		require.NotContains(t, kept, text[17:43], "a secret is kept")
	}
	require.Contains(t, kept, good[4:16], "its id is")
}

// A header of 10 MB is not read to its end, and costs nobody else anything.
func TestAHeaderOf10MBIsNotRead(t *testing.T) {
	t.Parallel()
	m := start(t)
	at, err := url.Parse(m.Hub.API)
	require.NoError(t, err)
	c, err := net.Dial("tcp", at.Host)
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.SetDeadline(time.Now().Add(meshtest.Patience)))
	go func() {
		_, _ = fmt.Fprintf(c, "GET /api/v1/instance HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer ", at.Host)
		_, _ = io.WriteString(c, strings.Repeat("x", 10<<20)) // it is cut off on the way
	}()

	line, err := bufio.NewReader(c).ReadString('\n')

	if err == nil { // else the reset came first
		require.Contains(t, line, "431")
	}
	p := asks(t, m, token(t, m, "good", api.Viewer, api.Everywhere).Token, 2)
	p.gets(t, api.Base+"/instance", new(api.Instance))
}

// Who guesses is slowed down, and nobody else is: not who has a valid token, at the same address and for the first time too.
func TestWhoGuessesIsSlowedDownAlone(t *testing.T) {
	t.Parallel()
	m := start(t)
	later := token(t, m, "later", api.Viewer, api.Everywhere).Token
	guess := asks(t, m, "", 2)
	statuses, began := map[int]int{}, time.Now()
	var wait string
	guesses := scale.Of(t, "SPAWNMESH_GUESSES", 20)
	for range guesses {
		guess.token = madetoken.New().Text()
		resp := guess.send(t.Context(), t, "GET", api.Base+"/instance", "")
		statuses[resp.StatusCode]++
		if resp.StatusCode == http.StatusTooManyRequests && wait == "" {
			wait = resp.Header.Get("Retry-After")
		}
		_, err := io.Copy(io.Discard, resp.Body)
		require.NoError(t, errors.Join(err, resp.Body.Close())) // one connection serves all
	}

	require.LessOrEqual(t, statuses[401], 7+int(time.Since(began)/(12*time.Second)))
	require.Equal(t, guesses, statuses[401]+statuses[429])
	require.Equal(t, "12", wait)
	status, code, _ := guess.ask(t, "GET", api.Base+"/instance", "")
	require.Equal(t, 429, status)
	require.Equal(t, "TOO_MANY_REQUESTS", code)
	asks(t, m, later, 2).gets(t, api.Base+"/instance", new(api.Instance))
}

// A database that does not answer holds no request up for long, and whoever watches the instance is told the same with a
// token as without.
func TestTheLookUpOfATokenHasAnEnd(t *testing.T) {
	t.Parallel()
	m := start(t)
	p := asks(t, m, token(t, m, "good", api.Viewer, api.Everywhere).Token, 2)
	p.gets(t, api.Base+"/instance", new(api.Instance))
	tx, err := m.Hub.SQL.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = tx.Exec(t.Context(), `LOCK TABLE tokens IN ACCESS EXCLUSIVE MODE`)
	require.NoError(t, err)

	status, code, said := p.ask(t, "GET", api.Base+"/instance", "")

	require.Equal(t, 503, status, said)
	require.Equal(t, "STORE", code)
	_, _, without := asks(t, m, "", 2).ask(t, "GET", "/readyz", "")
	_, _, with := p.ask(t, "GET", "/readyz", "")
	require.Equal(t, without, with)
	require.NoError(t, tx.Rollback(t.Context()))
	p.gets(t, api.Base+"/instance", new(api.Instance))
}

// What is being answered ends with the token: when it is revoked, and when its time is over.
func TestAStreamEndsWithItsToken(t *testing.T) {
	t.Parallel()
	m := start(t, "attic")
	task := m.Spawn(t, "attic", "sh", "-c", "echo begun; sleep 60")
	m.Await(t, task, "running")
	revoked, living, expiring := token(t, m, "revoked", api.Operator, api.Everywhere), token(t, m, "living", api.Operator, api.Everywhere), token(t, m, "expiring", api.Operator, api.Everywhere)
	ended := map[string]chan error{}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	for i, v := range []api.TokenCreated{revoked, living, expiring} {
		resp := asks(t, m, v.Token, byte(i+2)).send(ctx, t, "GET", api.Base+"/tasks/"+task+"/logs?follow=true", "")
		require.Equal(t, 200, resp.StatusCode)
		first := bufio.NewReader(resp.Body)
		line, err := first.ReadString('\n')
		require.NoError(t, err)
		require.NotEmpty(t, line)
		end := make(chan error, 1)
		ended[v.Name] = end
		go func() {
			_, err := io.Copy(io.Discard, first)
			end <- err
		}()
	}
	over := func(name string) {
		t.Helper()
		select {
		case err := <-ended[name]:
			require.ErrorIs(t, err, io.ErrUnexpectedEOF, "it was cut off, and does not look whole")
		case <-time.After(meshtest.Patience):
			require.FailNow(t, "the stream goes on", name)
		}
	}
	m.Hub.Do(t, "POST", api.Base+"/tokens/revoked/revoke", api.Reason{Reason: "test"}, nil)
	over("revoked")
	_, err := m.Hub.SQL.Exec(t.Context(), `UPDATE tokens SET expires_at = clock_timestamp() WHERE name = 'expiring'`)
	require.NoError(t, err)
	over("expiring")
	select {
	case err := <-ended["living"]:
		require.FailNow(t, "another token's stream has ended", "%v", err)
	default:
	}
	status, _, said := asks(t, m, expiring.Token, 9).ask(t, "GET", api.Base+"/instance", "")
	require.Equal(t, 401, status)
	require.Contains(t, said, "has expired")
	m.Hub.Do(t, "POST", api.Base+"/tasks/"+task+"/kill", json.RawMessage(`{"reason":"the test is over","grace_ms":0}`), nil)
}
