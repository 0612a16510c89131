package main

import (
	"context"
	"fmt"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

func (a *app) whyCommand() *cobra.Command {
	return &cobra.Command{
		Use: "why ID", Short: "Say why an agent does not run", Args: cobra.ExactArgs(1),
		Long: `Say why an agent does not run: on a hub as far as it knows, in the data directory
of its spoke every reason, also while no spoke runs.`,
		RunE: func(c *cobra.Command, args []string) error {
			return a.withReader(c.Context(), func(ctx context.Context, c *control.Client) error { return a.why(ctx, c, args[0]) })
		},
	}
}

func (a *app) why(ctx context.Context, c *control.Client, id string) error {
	var v agentView
	path := "/v1/agents/" + url.PathEscape(id)
	if err := c.Do(ctx, "GET", path, nil, &v); err != nil {
		return err
	}
	if v.Hub != "" {
		var w backlog.Why
		if err := c.Do(ctx, "GET", path+"/why", nil, &w); err != nil {
			return err
		}
		if err := a.printWhy(w); err != nil || killOf(v) == "" || !a.forPeople() {
			return err
		}
		_, err := fmt.Fprintf(a.out, "  a kill was %s\n", printable(killOf(v)))
		return err
	}
	w := struct {
		Task string `json:"id"`
		Why  string `json:"why"`
	}{v.Task, "it is " + v.Sentence()}
	if !v.State.Terminal() {
		said, err := a.openOnHub(ctx, c, v.AgentView)
		if err != nil {
			return err
		}
		w.Why = said
	}
	if killOf(v) != "" {
		w.Why += "; a kill was " + killOf(v)
	}
	if !a.forPeople() {
		return a.print(w, []any{w}, table{names: []string{w.Task}})
	}
	_, err := fmt.Fprintln(a.out, printable(w.Why))
	return err
}
