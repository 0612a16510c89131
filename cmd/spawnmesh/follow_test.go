package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/control"
)

// Who waits for an agent bears with a hub that is away for so long, and no longer.
func TestPatienceEnds(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		wait  func(a *app, ctx context.Context, c *control.Client) (hub.AgentView, error)
		bears time.Duration
		says  string
	}{
		"with a hub that took the order": {func(a *app, ctx context.Context, c *control.Client) (hub.AgentView, error) {
			return a.await(ctx, c, "A1")
		}, patience, "the hub did not answer for 1m; agent A1 goes on"},
		"with one that never answered": {func(a *app, ctx context.Context, c *control.Client) (hub.AgentView, error) {
			return a.followLogs(ctx, c, "A1", logFlags{last: -1})
		}, 0, "no instance runs in"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var said bytes.Buffer
				nobody := control.NewClient(t.TempDir())
				began := time.Now()

				_, err := tt.wait(&app{err: &said, getenv: func(string) string { return "" }}, t.Context(), nobody)

				require.Equal(t, commands.Unreachable, commands.CodeOf(err))
				require.ErrorContains(t, err, tt.says)
				require.InDelta(t, tt.bears.Seconds(), time.Since(began).Seconds(), 1)
				require.Equal(t, tt.bears > 0, strings.Contains(said.String(), "agent A1 goes on, and this waits for 1m"), said.String())
			})
		})
	}
}
