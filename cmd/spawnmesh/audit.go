package main

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
)

func (a *app) auditCommand() *cobra.Command {
	c := &cobra.Command{Use: "audit", Short: "Read what was decided"}
	var object string
	var limit int
	var since moment
	list := &cobra.Command{
		Use: "list", Short: "List the newest audit rows, oldest first", Args: cobra.NoArgs,
		Long: `List the newest audit rows, oldest first.

ID is an agent or a task by its id or the short one, a connection, a key of this
instance or another thing by its name; or a task of the backlog by its key, where
nothing else has that name. With --workspace it is a task of that workspace.`,
		Example: "  spawnmesh audit list --object k7f3m2qp\n  spawnmesh audit list --object attic -o wide\n  spawnmesh audit list --object A1 --workspace lab\n  spawnmesh audit list --since 2h --limit 50",
		RunE: func(c *cobra.Command, _ []string) error {
			within := c.Flags().Changed("workspace")
			if within && object == "" {
				return misuse("--workspace says where the task of --object is").Hinting("all of a workspace:").Running("backlog", "audit", "--workspace", a.workspace)
			}
			return a.audit(c.Context(), object, within, limit, since)
		},
	}
	a.inWorkspace(list)
	list.Flags().IntVar(&limit, "limit", 1000, "at most `N` rows, the newest")
	list.Flags().Var(&since, "since", "only what was decided in the last DURATION, or since TIME")
	list.Flags().StringVar(&object, "object", "", "only rows about the agent, task or connection `ID`")
	c.AddCommand(list, a.auditVerifyCommand(), a.auditExportCommand(), a.auditCheckpointsCommand())
	return c
}

// audit lists the newest rows, those about an object or all; within says that it is a task of the workspace.
func (a *app) audit(ctx context.Context, object string, within bool, limit int, since moment) error {
	if limit < 1 {
		return misuse("--limit is 1 or more")
	}
	return a.asking(ctx, func(ctx context.Context, c *control.Client) error {
		object, err := a.audited(ctx, c, object, within)
		if err != nil {
			return err
		}
		return a.auditPages(limit, func(cursor string, most int) (api.AuditList, error) {
			return control.Answer(c.API().ListAuditWithResponse(ctx, &api.ListAuditParams{Object: object, Limit: &most, Since: since.asked(), Cursor: cursor}))
		})
	})
}

// audited is the name under which the audit has what text names: a task of the workspace, or an agent or another thing, or else a
// task of the workspace again. What nobody knows stays as it is: the audit alone may have it.
func (a *app) audited(ctx context.Context, c *control.Client, text string, within bool) (string, error) {
	if text == "" {
		return "", nil
	}
	if !within {
		if v, err := agentNamed(ctx, c, text); err == nil { // a hub knows one by the beginning of its id, or its title
			return v.Task, nil
		}
		list, err := control.Answer(c.API().ListAuditWithResponse(ctx, &api.ListAuditParams{Object: text, Limit: new(1)}))
		if err != nil || len(list.Items) > 0 {
			return text, err
		}
	}
	v, err := control.Answer(c.API().GetBacklogTaskWithResponse(ctx, a.workspace, text))
	switch {
	case err == nil:
		return v.ID, nil
	case within:
		return "", err
	}
	return text, nil
}

// auditPages shows the newest rows of an audit that is asked for page by page.
func (a *app) auditPages(limit int, page func(cursor string, most int) (api.AuditList, error)) error {
	rows, more, err := paged(limit, false, func(cursor string, most int) (control.Items[api.AuditRow], error) {
		got, err := page(cursor, most)
		slices.Reverse(got.Items) // the newest first, as the pages
		return control.Items[api.AuditRow]{Items: got.Items, Next: got.Next}, err
	})
	if err != nil {
		return err
	}
	slices.Reverse(rows)
	if err := a.printAudit(rows); err != nil {
		return err
	}
	a.sayMore(more, "rows", "--limit N")
	return nil
}

func (a *app) printAudit(rows []api.AuditRow) error {
	t := table{head: []string{"SEQ", "AT", "ACTOR", "ACTION", "OBJECT", "CODE", "WHY"}, wide: []string{"CONNECTION", "MESSAGE"}, empty: "no audit rows",
		drops: []string{"ACTOR", "CODE", "SEQ", "AT"}, yields: "OBJECT", least: 19}
	at, n := "2006-01-02 15:04:05.000", columnsOf(a.out)
	narrow := 0 < n && n < 100
	if narrow {
		at = "01-02 15:04:05"
	}
	for _, r := range rows {
		seq := strconv.FormatInt(r.Seq, 10)
		if narrow { // without a column for the code
			r.Why = cmp.Or(r.Why, r.Code)
		}
		t.rows = append(t.rows, []string{seq, r.At.Local().Format(at), r.Actor, r.Action, a.objectOf(r), r.Code, r.Why, r.Conn, r.Message})
		t.names = append(t.names, seq)
	}
	return printList(a, rows, t)
}

// objectOf names what a row is about: a task by its short id, unless everything is shown.
func (a *app) objectOf(r api.AuditRow) string {
	if r.Action == "task.claimed" && !strings.HasPrefix(r.Why, "attempt ") {
		return r.Object // of many tasks at once: it is about the claim, which is found by its whole id alone
	}
	of, _, _ := strings.Cut(r.Action, ".")
	if a.output != "wide" && slices.Contains([]string{"task", "mirror", "operator", "worker"}, of) {
		return commands.ShortID(r.Object)
	}
	return r.Object
}

func (a *app) backlogAuditCommand() *cobra.Command {
	var limit int
	var since moment
	c := &cobra.Command{
		Use: "audit [ID]", Short: "Read what was decided about a task, or about all", Args: cobra.MaximumNArgs(1),
		Long: `Read what was decided about a task, or about all of the workspace: the newest rows,
oldest first. It needs no running hub or spoke.`,
		Example: "  spawnmesh backlog audit A1\n  spawnmesh backlog audit --limit 20 -o wide\n  spawnmesh backlog audit --since 2h",
		RunE: func(c *cobra.Command, args []string) error {
			if limit < 1 {
				return misuse("--limit is 1 or more")
			}
			ref, err := oneName(c, "id", "", args)
			if err != nil {
				return err
			}
			return a.asking(c.Context(), func(ctx context.Context, c *control.Client) error {
				return a.auditPages(limit, func(cursor string, most int) (api.AuditList, error) {
					return control.Answer(c.API().ListBacklogAuditWithResponse(ctx, a.workspace, &api.ListBacklogAuditParams{Task: ref, Limit: &most, Since: since.asked(), Cursor: cursor}))
				})
			})
		},
	}
	c.Flags().IntVar(&limit, "limit", 1000, "at most `N` rows, the newest")
	c.Flags().Var(&since, "since", "only what was decided in the last DURATION, or since TIME")
	return c
}
