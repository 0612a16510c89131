package main

import (
	"context"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

func (a *app) backlogArchiveCommand() *cobra.Command {
	return &cobra.Command{
		Use: "archive ID...", Short: "Leave tasks that have ended out of lists", Args: cobra.MinimumNArgs(1),
		Long: `Leave tasks that have ended out of lists. backlog list --archived lists them; show,
why and audit have them as before, stats counts them, and each is kept as long as any
other: see spawnmesh retention. One that is retried is in lists again.`,
		Example: "  spawnmesh backlog archive A1 A2",
		RunE: func(c *cobra.Command, ids []string) error {
			return a.changeTasks(c.Context(), ids, "is archived", func(c api.ClientInterface) cardChange { return c.ArchiveBacklogTask })
		},
	}
}

func (a *app) backlogUnarchiveCommand() *cobra.Command {
	return &cobra.Command{
		Use: "unarchive ID...", Short: "Show archived tasks in lists again", Args: cobra.MinimumNArgs(1),
		Example: "  spawnmesh backlog unarchive A1",
		RunE: func(c *cobra.Command, ids []string) error {
			return a.changeTasks(c.Context(), ids, "is in lists again", func(c api.ClientInterface) cardChange { return c.UnarchiveBacklogTask })
		},
	}
}

// A cardChange changes how one task of a backlog is shown.
type cardChange func(ctx context.Context, workspace, task string, more ...api.RequestEditorFn) (*http.Response, error)

func (a *app) changeTasks(ctx context.Context, ids []string, so string, change func(api.ClientInterface) cardChange) error {
	return a.asking(ctx, func(ctx context.Context, c *control.Client) error {
		return eachOf(a, ids, func(id string) (v backlog.Task, name, said string, err error) {
			got, err := control.Read[api.BacklogTask](change(c.API())(ctx, a.workspace, id))
			v = taskFrom(got)
			return v, v.Ref(), v.Name() + " " + so, err
		})
	})
}
