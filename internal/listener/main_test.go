package listener_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/listener"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
)

func TestMain(m *testing.M) { meshtest.Main(m) }

// start runs a hub that serves other programs on loopback, and spokes.
func start(t *testing.T, spokes ...string) *meshtest.Mesh {
	t.Helper()
	return meshtest.Plan{API: &listener.Config{Address: "127.0.0.1:0"}}.Start(t, spokes...)
}

// token lets the owner make one.
func token(t *testing.T, m *meshtest.Mesh, name string, role api.Role, workspace string) api.TokenCreated {
	t.Helper()
	var v api.TokenCreated
	m.Hub.Do(t, "POST", api.Base+"/tokens", api.NewToken{Name: name, Role: role, Workspace: workspace}, &v)
	return v
}

// A program asks a hub with a token.
type program struct {
	url, token string
	http       *http.Client
	change     func(*http.Request) // the last thing done to each request; nil = nothing
}

// asks is a program on this machine that has an address of its own: what others do wrong is not held against it.
func asks(t *testing.T, m *meshtest.Mesh, token string, last byte) *program {
	t.Helper()
	from := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, last)}}
	c := &http.Client{Transport: &http.Transport{DialContext: from.DialContext}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	t.Cleanup(c.CloseIdleConnections)
	return &program{url: m.Hub.API, token: token, http: c}
}

func (p *program) send(ctx context.Context, t *testing.T, method, path, body string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, p.url+path, strings.NewReader(body))
	require.NoError(t, err)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if p.token != "" {
		req.Header.Set("Authorization", "Bearer "+p.token)
	}
	if p.change != nil {
		p.change(req)
	}
	resp, err := p.http.Do(req)
	require.NoError(t, err)
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// ask returns the status of an answer, its code where it is a problem, and all of it.
func (p *program) ask(t *testing.T, method, path, body string) (status int, code, said string) {
	t.Helper()
	ctx, done := context.WithTimeout(t.Context(), meshtest.Patience)
	defer done()
	resp := p.send(ctx, t, method, path, body)
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	var problem api.Problem
	if resp.StatusCode >= 400 {
		require.NoError(t, json.Unmarshal(text, &problem), "%s", text)
		require.Equal(t, resp.StatusCode, problem.Status)
	}
	return resp.StatusCode, problem.Code, string(text)
}

func problemOf(t *testing.T, resp *http.Response) (p api.Problem) {
	t.Helper()
	if resp.StatusCode >= 400 {
		require.NoError(t, json.NewDecoder(resp.Body).Decode(&p))
	}
	return p
}

// gets requires an answer and reads it.
func (p *program) gets(t *testing.T, path string, v any) {
	t.Helper()
	status, _, said := p.ask(t, "GET", path, "")
	require.Equal(t, 200, status, said)
	require.NoError(t, json.Unmarshal([]byte(said), v), said)
}

// everythingKept is all that the hub keeps where somebody may read it: its log, its audit and its tokens.
func everythingKept(t *testing.T, m *meshtest.Mesh) string {
	t.Helper()
	var kept bytes.Buffer
	fmt.Fprintln(&kept, m.Hub.Log.String())
	for _, table := range []string{"audit", "tokens", "mirrors"} {
		var text string
		require.NoError(t, m.Hub.SQL.QueryRow(t.Context(), `SELECT coalesce(string_agg(x::text, ' '), '') FROM `+table+` x`).Scan(&text))
		fmt.Fprintln(&kept, text)
	}
	return kept.String()
}
