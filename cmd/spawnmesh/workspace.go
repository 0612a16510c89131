package main

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/internal/control"
)

func (a *app) workspaceCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "workspace", Short: "See which workspaces there are",
		Long: `See which workspaces there are. A workspace keeps tasks and their limits apart from
others. It need not be made: it is there when a command names it with --workspace.`,
	}
	c.AddCommand(&cobra.Command{
		Use: "list", Short: "List the workspaces that tasks are in, or were in lately", Args: cobra.NoArgs,
		Long: `List the workspaces that tasks are in, or were in lately, and how many tasks stand
ready in each.`,
		RunE: func(c *cobra.Command, _ []string) error { return a.asking(c.Context(), a.listWorkspaces) },
	})
	return c
}

func (a *app) listWorkspaces(ctx context.Context, c *control.Client) error {
	list, err := control.Answer(c.API().ListWorkspacesWithResponse(ctx))
	if err != nil {
		return err
	}
	t := table{head: []string{"WORKSPACE", "READY"}, empty: "no workspaces yet; the first task makes one: " + a.line("backlog", "create", "--title", "TEXT")}
	for _, w := range list.Items {
		t.rows, t.names = append(t.rows, []string{w.Name, strconv.FormatInt(w.Ready, 10)}), append(t.names, w.Name)
	}
	return printList(a, list.Items, t)
}
