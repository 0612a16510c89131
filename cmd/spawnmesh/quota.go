package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

func (a *app) quotaCommand() *cobra.Command {
	c := &cobra.Command{Use: "quota", Short: "Limit how many tasks are claimed at once, or in a time"}
	a.inWorkspace(c)
	list := &cobra.Command{
		Use: "list", Short: "List quotas and how much of them is taken", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.asking(c.Context(), func(ctx context.Context, c *control.Client) error {
				list, err := control.Answer(c.API().ListQuotasWithResponse(ctx, a.workspace))
				if err != nil {
					return err
				}
				return a.printQuotas(each(list.Items, quotaFrom))
			})
		},
	}
	show := a.limitCommand("show NAME", "Show one quota", func(ctx context.Context, c *api.ClientWithResponses, name string) error {
		q, err := control.Answer(c.GetQuotaWithResponse(ctx, a.workspace, name))
		if err != nil {
			return err
		}
		return a.printQuota(quotaFrom(q))
	})
	c.AddCommand(a.quotaCreateCommand(), list, show,
		a.removeCommand("quota", func(ctx context.Context, c *api.ClientWithResponses, name string, why api.Reason) (api.Removal, error) {
			return control.Answer(c.RemoveQuotaWithResponse(ctx, a.workspace, name, why))
		}))
	return c
}

func (a *app) quotaCreateCommand() *cobra.Command {
	var q api.NewQuota
	var scope string
	var concurrent, perWindow int
	var window days
	c := &cobra.Command{
		Use: "create NAME", Short: "Create a quota, or change the limits of one", Args: cobra.ExactArgs(1),
		Example: `  spawnmesh quota create four-at-once --concurrent 4
  spawnmesh quota create gentle --scope lane:nightly --per-window 100 --window 1h`,
		RunE: func(c *cobra.Command, args []string) error {
			q.Name = args[0]
			q.Scope, q.Target = splitScope(scope)
			if c.Flags().Changed("concurrent") {
				q.Concurrent = &concurrent
			}
			if c.Flags().Changed("per-window") {
				q.PerWindow = &perWindow
			}
			var err error
			if q.WindowSeconds, err = inSeconds(window); err != nil {
				return err
			}
			return a.askingFirst(c.Context(), func(ctx context.Context, c *control.Client) error {
				v, err := control.Answer(c.API().SetQuotaWithResponse(ctx, a.workspace, q))
				if err != nil {
					return err
				}
				return a.sayQuota(quotaFrom(v))
			})
		},
	}
	fl := c.Flags()
	fl.StringVar(&scope, "scope", "workspace", "`WHAT` it limits: workspace, instance, or lane:NAME, account:NAME, agent:OWNER, connection:ID")
	fl.IntVar(&concurrent, "concurrent", 0, "at most `N` claims at a time")
	fl.IntVar(&perWindow, "per-window", 0, "at most `N` claims in the time that --window gives; each claim counts all of them: for hundreds, not hundreds of thousands")
	fl.Var(&window, "window", "the time that --per-window is about")
	return c
}

func (a *app) sayQuota(q backlog.Quota) error {
	a.did("the quota is changed; see: %s", a.line("quota", "show", q.Name))
	if a.forPeople() {
		_, err := fmt.Fprintf(a.out, "quota %s: %s\n", q.Name, limitsOf(q))
		return err
	}
	return a.printQuota(q)
}

// limitsOf says what a quota allows.
func limitsOf(q backlog.Quota) string {
	text := ""
	if q.Concurrent != nil {
		text = strconv.Itoa(*q.Concurrent) + " at a time"
	}
	if q.PerWindow != nil {
		if text != "" {
			text += ", "
		}
		text += strconv.Itoa(*q.PerWindow) + " in " + commands.Lasting(time.Duration(q.Window))
	}
	return text
}

func (a *app) printQuotas(list []backlog.Quota) error {
	t := table{head: []string{"QUOTA", "SCOPE", "ALLOWS", "ACTIVE", "IN WINDOW"},
		empty: "no quotas yet; create one: " + a.self() + " quota create NAME --concurrent 4"}
	for _, q := range list {
		inWindow := "-"
		if q.PerWindow != nil {
			inWindow = strconv.Itoa(q.InWindow)
		}
		t.names = append(t.names, q.Name)
		t.rows = append(t.rows, []string{q.Name, scopeOf(q.Scope, q.Target), limitsOf(q), strconv.Itoa(q.Active), inWindow})
	}
	return printList(a, list, t)
}

func (a *app) printQuota(q backlog.Quota) error {
	if !a.forPeople() {
		return a.print(q, []any{q}, table{names: []string{q.Name}})
	}
	var list pairs
	list.add("quota", q.Name)
	list.add("scope", scopeOf(q.Scope, q.Target))
	list.add("allows", limitsOf(q))
	list.add("active", strconv.Itoa(q.Active))
	if q.PerWindow != nil {
		list.add("in window", strconv.Itoa(q.InWindow))
	}
	return a.align(list, 0)
}
