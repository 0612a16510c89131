package node

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/instance"
	"github.com/spawnmesh/spawnmesh/internal/pgtest"
	"github.com/spawnmesh/spawnmesh/store"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// A hub whose message server has ended can reach no spoke, and is not ready, while all else is there.
func TestAHubWithoutItsMessageServerIsNotReady(t *testing.T) {
	t.Parallel()
	dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
	options := instance.Options{Dir: dir, DatabaseURL: pgtest.Prepared(t, store.Prepare), PoolSize: 8, Log: log}
	first, err := instance.Visit(t.Context(), options, true) // it makes the keys
	require.NoError(t, err)
	require.NoError(t, first.Close(t.Context()))
	in, err := instance.Open(t.Context(), options, false)
	require.NoError(t, err)
	serves := make(chan string, 1)
	n := &Node{Instance: in, Version: "test", Log: log, Ready: func(link string) { serves <- link },
		Hub: &hub.Hub{DB: in.DB, Keys: in.Keys, Dir: dir, Name: "lab", Listen: "127.0.0.1:0", Log: log}}
	ctx, end := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	t.Cleanup(func() {
		end()
		if err := <-ended; err != nil {
			require.EqualError(t, err, "closed") // the message server was, and it has seen that first
		}
		require.NoError(t, in.Close(context.WithoutCancel(t.Context())))
	})
	select {
	case <-serves:
	case err := <-ended:
		ended <- err
		require.FailNow(t, "it does not run", "%v", err)
	case <-time.After(time.Minute):
		require.FailNow(t, "it does not serve")
	}
	ask := func() (status int, p api.Problem) {
		answer := httptest.NewRecorder()
		n.readyz(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", nil))
		require.NoError(t, json.Unmarshal(answer.Body.Bytes(), &p))
		return answer.Code, p
	}
	status, _ := ask()
	require.Equal(t, http.StatusOK, status)

	n.board.Server.Close()

	status, p := ask()
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Equal(t, "NOT_READY", p.Code)
	require.Equal(t, "nats", p.Detail, "and nothing else is missing")
}
