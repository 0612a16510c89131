package listener_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/internal/listener"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
)

// logged waits for the line about a request, and returns it.
func logged(t *testing.T, m *meshtest.Mesh, resp *http.Response) (line string) {
	t.Helper()
	id := resp.Header.Get(listener.RequestID)
	require.Regexp(t, `^[a-z2-7]{12}$`, id)
	meshtest.Await(t, "a line about the request "+id, func() bool {
		for l := range strings.Lines(m.Hub.Log.String()) {
			if strings.Contains(l, "request="+id) {
				line = l
			}
		}
		return line != ""
	})
	return line
}

// A request has a line in the log with who asked what and how it was answered, and with nothing that it sent.
func TestARequestIsLogged(t *testing.T) {
	t.Parallel()
	m := start(t)
	owner := asks(t, m, token(t, m, "boss", api.Owner, api.Everywhere).Token, 2)
	nobody := asks(t, m, "", 3)
	secret := token(t, m, "other", api.Viewer, "main")

	made := logged(t, m, owner.send(t.Context(), t, "POST", "/api/v1/workspaces/main/tasks", `{"tasks":[{"title":"hunter2-title","body":"hunter2-body"}]}`))
	read := logged(t, m, owner.send(t.Context(), t, "GET", "/api/v1/audit?actor=hunter2-query&limit=1", ""))
	denied := logged(t, m, nobody.send(t.Context(), t, "POST", "/api/v1/tasks?title=hunter2-query", `{"title":"hunter2"}`))
	mistaken := logged(t, m, owner.send(t.Context(), t, "POST", "/api/v1/tokens/"+secret.Token+"/revoke", "{}"))

	require.Regexp(t, `level=INFO msg="a request to the API was answered" request=\w+ method=POST path=/api/v1/workspaces/main/tasks status=\d+ took=[\d.]+\S+ by=token:boss\n`, made)
	require.Regexp(t, `level=DEBUG .* method=GET path=/api/v1/audit status=\d+ .* by=token:boss\n`, read)
	require.Regexp(t, `level=WARN msg="a request to the API was refused" .* method=POST path=/api/v1/tasks status=401 .* by=unknown from=127.0.0.3 unsaid=0\n`, denied)
	require.Contains(t, mistaken, "path=/api/v1/tokens/smt_...")
	for _, said := range []string{"hunter2", strings.TrimPrefix(secret.Token, "smt_"), owner.token} {
		require.NotContains(t, m.Hub.Log.String(), said)
	}
}

// However often somebody is refused, few lines say it, and say how many others there were.
func TestWhoIsRefusedDoesNotFillTheLog(t *testing.T) {
	t.Parallel()
	m := start(t)
	nobody := asks(t, m, "", 2)
	const asked = 300
	for range asked {
		nobody.ask(t, "GET", "/api/v1/tasks", "")
	}
	lines := func() []string {
		return regexp.MustCompile(`was refused.* from=127.0.0.2 unsaid=\d+`).FindAllString(m.Hub.Log.String(), -1)
	}
	require.Less(t, len(lines()), asked/2)
	meshtest.Await(t, "a line that counts the others", func() bool {
		nobody.ask(t, "GET", "/api/v1/tasks", "")
		list := lines()
		return !strings.HasSuffix(list[len(list)-1], "unsaid=0")
	})
}

// What clients may have is a setting.
func TestBoundsAreSettings(t *testing.T) {
	t.Parallel()
	m := meshtest.Plan{API: &listener.Config{Address: "127.0.0.1:0", Bounds: listener.Bounds{Connections: 8, Rate: 3, Open: 1}}}.Start(t)
	p := asks(t, m, token(t, m, "ops", api.Operator, api.Everywhere).Token, 2)
	other := asks(t, m, token(t, m, "ops2", api.Operator, api.Everywhere).Token, 3)
	following, stop := context.WithCancel(t.Context())
	defer stop()
	require.Equal(t, 200, p.send(following, t, "GET", "/api/v1/events?follow=true", "").StatusCode)

	status, code, said := p.ask(t, "GET", "/api/v1/tasks", "")

	require.Equal(t, "429 TOO_MANY_REQUESTS", fmt.Sprint(status, " ", code), said)
	require.Contains(t, said, "1 requests with this token are being answered already")
	status, _, said = other.ask(t, "GET", "/api/v1/tasks", "")
	require.Equal(t, 200, status, said)
	stop()
	meshtest.Await(t, "the place of the stream", func() bool {
		status, _, _ := p.ask(t, "GET", "/api/v1/tasks", "")
		return status == 200
	})
	for range 20 {
		if status, _, said = other.ask(t, "GET", "/api/v1/tasks", ""); status != 200 {
			break
		}
	}
	require.Equal(t, 429, status)
	require.Contains(t, said, "more than 3 requests a second with this token")
	for _, b := range []listener.Bounds{{Connections: 1}, {Rate: -1}, {Open: 1 << 17}} {
		require.Error(t, b.Check(), "%+v", b)
	}
}

// A metric counts the connections that were one too many.
func TestRefusedConnectionsAreAMetric(t *testing.T) {
	t.Parallel()
	m := meshtest.Plan{API: &listener.Config{Address: "127.0.0.1:0", Bounds: listener.Bounds{Connections: 4}}}.Start(t)
	at, err := url.Parse(m.Hub.API)
	require.NoError(t, err)
	for range 3 {
		c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 9)}}).Dial("tcp", at.Host)
		require.NoError(t, err)
		defer c.Close()
	}
	metrics := func() string {
		resp, err := control.NewClient(m.Hub.Dir).Send(t.Context(), "GET", "/metrics", nil) // all connections of the loopback are taken
		require.NoError(t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return string(text)
	}

	meshtest.Await(t, "the count", func() bool {
		return strings.Contains(metrics(), `spawnmesh_api_connections_refused_total{cause="address"} 1`)
	})
	require.Contains(t, metrics(), `spawnmesh_api_connections_refused_total{cause="all"} 0`, "what has not happened is zero")
}
