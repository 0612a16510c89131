package main

import (
	"context"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

func (a *app) backlogArchiveCommand() *cobra.Command {
	var older days
	var lane, phase string
	c := &cobra.Command{
		Use: "archive [ID]...", Short: "Leave tasks that have ended out of lists",
		Long: `Leave tasks that have ended out of lists: those that are named, or all that ended
longer ago than --older-than, are in the lane or of the phase that is named, or all
of this. An agent of a hub is archived there.

backlog list --archived lists them; show, why and audit have them as before, stats
counts them, and each is kept as long as any other: see spawnmesh retention. One
that is retried is in lists again.`,
		Example: "  spawnmesh backlog archive A1 A2\n  spawnmesh backlog archive --older-than 7d --phase build",
		RunE: func(c *cobra.Command, ids []string) error {
			if c.Flags().Changed("older-than") && older == 0 {
				return misuse("--older-than is above 0, such as 1s")
			}
			chosen := older > 0 || lane != "" || phase != ""
			switch {
			case chosen && len(ids) > 0:
				return misuse("ids name tasks, and so do --older-than, --lane and --phase").Hinting("give one or the other")
			case !chosen && len(ids) == 0:
				return misuse("no task is named").Hinting("name some by their ids, or by --older-than DURATION, --lane NAME or --phase LABEL")
			case chosen:
				return a.archiveTasks(c.Context(), api.BacklogArchiveSelection{OlderThanMS: time.Duration(older).Milliseconds(), Lane: lane, Phase: phase})
			}
			return a.changeTasks(c.Context(), ids, "is archived", func(c api.ClientInterface) cardChange { return c.ArchiveBacklogTask })
		},
	}
	c.Flags().Var(&older, "older-than", "those that ended longer ago")
	c.Flags().StringVar(&lane, "lane", "", "those in the lane `NAME`")
	c.Flags().StringVar(&phase, "phase", "", "those of the phase `LABEL`")
	return c
}

// archiveTasks archives what is chosen by age, lane or phase.
func (a *app) archiveTasks(ctx context.Context, asked api.BacklogArchiveSelection) error {
	return a.asking(ctx, func(ctx context.Context, c *control.Client) error {
		return a.archiveAll("task", func(cursor string) (api.ArchiveSummary, error) {
			asked.Cursor = cursor
			return control.Read[api.ArchiveSummary](c.API().ArchiveBacklogTasks(ctx, a.workspace, asked))
		})
	})
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
