package meshtest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/output"
)

// A logFollower follows the log of an agent: where a stream is cut off, it goes on behind the last piece that it had.
type logFollower struct {
	last output.Piece
	text strings.Builder
	cuts int
}

// follow ends with the log, or with ctx.
func (f *logFollower) follow(ctx context.Context, m *Mesh, task string) error {
	for ctx.Err() == nil {
		var wrong error
		err := m.Hub.client.Follow(ctx, fmt.Sprintf("/api/v1/tasks/%s/logs?follow=true&after=%d", task, f.last.Seq), func(raw json.RawMessage) error {
			wrong = f.take(raw)
			return wrong
		})
		if err == nil || wrong != nil {
			return wrong
		}
		f.cuts++
	}
	return ctx.Err()
}

func (f *logFollower) take(raw json.RawMessage) error {
	var p output.Piece
	if err := json.Unmarshal(raw, &p); err != nil || p.Seq == 0 { // it waits for the spoke
		return err
	}
	if p.Seq <= f.last.Seq || p.Offset != int64(f.text.Len()) || p.Dropped != nil {
		return fmt.Errorf("after %d, with %d bytes, came %d, at %d, dropped %v", f.last.Seq, f.text.Len(), p.Seq, p.Offset, p.Dropped)
	}
	f.last = p
	f.text.Write(p.Data)
	return nil
}

// Who follows the log of an agent of a hub that is started again and again gets each byte once.
func TestALogOverRestartsOfTheHub(t *testing.T) {
	t.Parallel()
	m := Start(t, "attic")
	enough := filepath.Join(t.TempDir(), "enough")
	task := m.Spawn(t, "attic", "/bin/sh", "-c", `n=0; until [ -e "$0" ]; do n=$((n+1)); echo $n; sleep 0.005; done; echo $n >"$0"`, enough)
	m.Await(t, task, commands.Running)
	ctx, done := context.WithCancel(context.WithoutCancel(t.Context()))
	defer done()
	f, end := &logFollower{}, make(chan error, 1)
	go func() { end <- f.follow(ctx, m, task) }()
	const restarts = 20
	for range restarts {
		m.Stop(t, "hub")
		m.Start(t, "hub")
		m.AwaitLink(t, "attic")
	}
	require.NoError(t, os.WriteFile(enough, nil, 0o600))
	m.Wait(t, task)

	require.NoError(t, <-end)

	raw, err := os.ReadFile(enough)
	require.NoError(t, err)
	var want strings.Builder
	for n := 1; !strings.HasSuffix(want.String(), "\n"+string(raw)); n++ {
		fmt.Fprintln(&want, n)
	}
	require.Equal(t, want.String(), f.text.String())
	require.Greater(t, f.cuts, restarts/2, "two restarts may be one cut")
}
