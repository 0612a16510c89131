package main

import (
	"context"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/store"
)

func (a *app) auditCommand() *cobra.Command {
	c := &cobra.Command{Use: "audit", Short: "Read what was decided"}
	var object string
	list := &cobra.Command{
		Use: "list", Short: "List the newest audit rows, oldest first", Args: cobra.NoArgs,
		Example: "  spawnmesh audit list --object 0193a3c0-2222\n  spawnmesh audit list --object attic -o wide",
		RunE:    func(c *cobra.Command, _ []string) error { return a.audit(c.Context(), object) },
	}
	list.Flags().StringVar(&object, "object", "", "only rows about the agent or connection `ID`")
	c.AddCommand(list)
	return c
}

func (a *app) audit(ctx context.Context, object string) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	// A hub knows an agent by the beginning of its id; anything else stays as it is.
	var v hub.AgentView
	if object != "" && c.Do(ctx, "GET", "/v1/agents/"+url.PathEscape(object), nil, &v) == nil {
		object = v.Task
	}
	var rows []store.AuditRow
	if err := c.Do(ctx, "GET", "/v1/audit?object="+url.QueryEscape(object), nil, &rows); err != nil {
		return err
	}
	t := table{head: []string{"SEQ", "AT", "ACTOR", "ACTION", "OBJECT", "CODE", "WHY"}, wide: []string{"CONNECTION", "MESSAGE"}, empty: "no audit rows"}
	for _, r := range rows {
		seq := strconv.FormatInt(r.Seq, 10)
		t.rows = append(t.rows, []string{seq, r.At.Local().Format("2006-01-02 15:04:05.000"), r.Actor, r.Action, r.Object, r.Code, r.Why, r.Conn, r.Message})
		t.names = append(t.names, seq)
	}
	return printList(a, rows, t)
}
