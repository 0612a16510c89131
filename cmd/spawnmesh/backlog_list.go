package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

func (a *app) backlogListCommand() *cobra.Command {
	var limit int
	var ask api.ListBacklogTasksParams
	c := &cobra.Command{
		Use: "list", Short: "List tasks, newest first", Args: cobra.NoArgs,
		Long: `List tasks, newest first; with --ready-only those whose dependencies are all
completed, in the order in which they would be claimed.`,
		Example: "  spawnmesh backlog list --status claimed\n  spawnmesh backlog list --ready-only --json",
		RunE: func(c *cobra.Command, _ []string) error {
			if limit < 1 || limit > pageLength {
				return misuse("--limit is from 1 to %d", pageLength)
			}
			return a.listTasks(c.Context(), ask, limit)
		},
	}
	fl := c.Flags()
	fl.StringVar(&ask.Status, "status", "", "only those that are `STATUS`: ready, claimed, blocked or done")
	fl.StringVar(&ask.State, "state", "", "only those in the exact `STATE`, such as queued or failed")
	fl.StringVar(&ask.Phase, "phase", "", "only those of the phase `LABEL`")
	fl.StringVar(&ask.Lane, "lane", "", "only those in the lane `NAME`")
	fl.StringVar(&ask.Owner, "owner", "", "only those that `NAME` has claimed")
	fl.BoolVar(&ask.ReadyOnly, "ready-only", false, "only those that wait for no other task, in claim order")
	fl.BoolVar(&ask.Archived, "archived", false, "those that are archived, which are not listed else")
	fl.IntVar(&limit, "limit", 100, "at most `N`, up to 1000")
	fl.StringVar(&ask.Before, "before", "", "only those created before the task `ID`: the next page")
	return c
}

// listTasks shows at most limit tasks. Of those in claim order one answer has as many as there can be, and no next.
func (a *app) listTasks(ctx context.Context, ask api.ListBacklogTasksParams, limit int) error {
	var list []api.BacklogTask
	more, all, empty := false, ask == api.ListBacklogTasksParams{}, "no such tasks; all of them: "+a.line("backlog", "list")
	err := a.asking(ctx, func(ctx context.Context, c *control.Client) (err error) {
		list, more, err = paged(limit, false, func(cursor string, most int) (control.Items[api.BacklogTask], error) {
			ask.Cursor, ask.Limit = cursor, &most
			page, err := control.Answer(c.API().ListBacklogTasksWithResponse(ctx, a.workspace, &ask))
			return control.Items[api.BacklogTask]{Items: page.Items, Next: page.Next}, err
		})
		if err != nil || len(list) > 0 {
			return err
		}
		if all {
			empty, err = a.noTasks(ctx, c)
		} else {
			empty += a.otherWorkspaces(ctx, c)
		}
		return err
	})
	if err != nil {
		return err
	}
	t := table{head: []string{"TASK", "STATUS", "WAITS FOR", "PRIORITY", a.ageOr("CREATED"), "OWNER", "TITLE"}, wide: []string{"STATE", "LANE", "PHASE", "CLAIMS", "ID"}, drops: []string{"PRIORITY", "AGE"}}
	t.empty = empty
	tasks := each(list, taskFrom)
	for _, x := range tasks {
		t.names = append(t.names, x.Ref())
		t.rows = append(t.rows, []string{shortName(x), statusOf(x), waitsFor(x), strconv.Itoa(x.Priority), a.since(x.CreatedAt), x.Owner, shorten(x.Title, 50),
			string(x.State), x.Lane, x.Phase, strconv.Itoa(x.Attempts), x.ID})
	}
	if err := printList(a, tasks, t); err != nil {
		return err
	}
	a.sayMoreTasks(ask.ReadyOnly, limit, len(list), more)
	return nil
}

// sayMoreTasks says that there are more tasks than the n of a list, and how they are seen; in claim order there may be more than
// one answer has.
func (a *app) sayMoreTasks(ready bool, limit, n int, more bool) {
	switch {
	case ready && n == pageLength:
		fmt.Fprintf(a.err, "there may be more tasks than these: a list in claim order has %d at most; narrow it with --lane, --phase or --owner\n", pageLength)
	case limit == pageLength:
		a.sayMore(more, "tasks", "--before ID, of the last of these")
	default:
		a.sayMore(more, "tasks", "--limit N")
	}
}

// otherWorkspaces says where there may be tasks that a list of this workspace does not have; "" where nowhere, or who asks may not know.
func (a *app) otherWorkspaces(ctx context.Context, c *control.Client) string {
	list, err := control.Answer(c.API().ListWorkspacesWithResponse(ctx))
	if err != nil || !slices.ContainsFunc(list.Items, func(w api.Workspace) bool { return w.Name != a.workspace }) {
		return ""
	}
	return "; other workspaces have tasks, or had some lately: " + a.line("workspace", "list") + ", then --workspace NAME"
}

// noTasks says that no task is listed, and how many are archived.
func (a *app) noTasks(ctx context.Context, c *control.Client) (string, error) {
	most := 1000
	got, err := control.Answer(c.API().ListBacklogTasksWithResponse(ctx, a.workspace, &api.ListBacklogTasksParams{Archived: true, Limit: &most}))
	switch {
	case err != nil:
		return "", err
	case len(got.Items) == 0:
		return "no tasks yet; create one: " + a.line("backlog", "create", "--title", "TEXT") + a.otherWorkspaces(ctx, c), nil
	}
	return a.onlyArchived("tasks", len(got.Items), got.Next != "", "backlog", "list", "--archived"), nil
}

// statusOf is the board's column, and how it came to be done where that is not
// by its completion.
func statusOf(t backlog.Task) string {
	if t.Status == backlog.BoardDone && t.State != commands.Completed {
		return string(t.Status) + ": " + string(t.State)
	}
	return string(t.Status)
}

// shortName is how people name the task, where a key is not long.
func shortName(t backlog.Task) string { return shorten(t.Name(), 30) }

// waitsFor says what keeps a queued task from being claimed.
func waitsFor(t backlog.Task) string {
	switch t.Eligibility {
	case backlog.EligibleReady, backlog.EligibilityUnknown:
		return ""
	case backlog.WaitingDeps:
		return strconv.Itoa(t.Unmet) + " of " + strconv.Itoa(len(t.DependsOn)) + " tasks"
	case backlog.NotBefore:
		return clock(t.NotBefore)
	}
	return strings.ReplaceAll(string(t.Eligibility), "_", " ")
}
