package main

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
)

// A list that is watched is read behind the moment from which on changes are told: none falls between the two.
func TestAListBeginsWhereItsChangesDo(t *testing.T) {
	t.Parallel()
	listed, first := make(chan struct{}), sync.Once{}
	var early atomic.Bool
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+api.Base+"/events", func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-listed:
			early.Store(true)
		case <-time.After(500 * time.Millisecond): // for one that would come too early
		}
		_, _ = io.WriteString(w, "id: 7\ndata: {\"position\":7}\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	mux.HandleFunc("GET /list", func(w http.ResponseWriter, _ *http.Request) {
		first.Do(func() { close(listed) })
		control.JSON(w, []string{"a"})
	})
	dir := t.TempDir()
	l, err := control.Listen(t.Context(), dir)
	require.NoError(t, err)
	serving, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- control.Serve(serving, l, mux, nil, nil, slog.New(slog.DiscardHandler)) }()
	watching, enough := context.WithCancel(t.Context())
	c := control.NewClient(dir)

	err = watchList(watching, &app{out: &bytes.Buffer{}, err: &bytes.Buffer{}, getenv: func(string) string { return "" }}, c, watched[string]{
		list: func(ctx context.Context) (list []string, err error) {
			err = c.Do(ctx, "GET", "/list", nil, &list)
			return list, err
		},
		print: func([]string) error { enough(); return nil },
		key:   func(s string) string { return s },
		about: func(api.Event) string { return "" },
	})

	require.ErrorIs(t, err, context.Canceled)
	require.False(t, early.Load(), "it was read before")
	stop()
	require.NoError(t, <-ended)
}
