package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

func (a *app) budgetCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "budget", Short: "Limit what claimed tasks may spend",
		Long: `Limit what claimed tasks may spend of one dimension: usd, tokens, minutes, or any
other name; spawns counts claims.

A claim reserves the task's --estimate. What its worker reports with --usage takes
the place of that; the rest is given back when the claim ends. A task that does not
fit waits, or what --on-hard says. An account that has no budget may spend nothing.`,
	}
	a.inWorkspace(c)
	list := &cobra.Command{
		Use: "list", Short: "List budgets and what is left of them", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.asking(c.Context(), func(ctx context.Context, c *control.Client) error {
				list, err := control.Answer(c.API().ListBudgetsWithResponse(ctx, a.workspace))
				if err != nil {
					return err
				}
				return a.printBudgets(each(list.Items, budgetFrom))
			})
		},
	}
	show := a.limitCommand("show NAME", "Show one budget", func(ctx context.Context, c *api.ClientWithResponses, name string) error {
		g, err := control.Answer(c.GetBudgetWithResponse(ctx, a.workspace, name))
		if err != nil {
			return err
		}
		return a.printBudget(budgetFrom(g))
	})
	c.AddCommand(a.budgetCreateCommand(), list, show, a.budgetGrantCommand(), a.budgetResetCommand(),
		a.removeCommand("budget", func(ctx context.Context, c *api.ClientWithResponses, name string, why api.Reason) (api.Removal, error) {
			return control.Answer(c.RemoveBudgetWithResponse(ctx, a.workspace, name, why))
		}))
	return c
}

// budgetFlags are what the operator says about a budget.
type budgetFlags struct {
	budget         api.NewBudget
	scope          string
	hard, soft     string
	resets         string
	rolling, every days
}

func (a *app) budgetCreateCommand() *cobra.Command {
	var f budgetFlags
	c := &cobra.Command{
		Use: "create NAME", Short: "Create a budget, or change the limits of one", Args: cobra.ExactArgs(1),
		Example: `  spawnmesh budget create monthly --dimension usd --hard 100 --soft 80 --rolling 30d
  spawnmesh budget create nightly --scope lane:nightly --dimension spawns --hard 20 \
    --resets-at '2026-01-01 06:00' --every 1d
  spawnmesh budget create team-a --scope account:team-a --dimension usd --hard 50`,
		RunE: func(c *cobra.Command, args []string) error {
			f.budget.Name = args[0]
			if err := f.complete(); err != nil {
				return err
			}
			return a.askingFirst(c.Context(), func(ctx context.Context, c *control.Client) error {
				return a.sayBudget(control.Answer(c.API().SetBudgetWithResponse(ctx, a.workspace, f.budget)))
			})
		},
	}
	fl := c.Flags()
	fl.StringVar(&f.scope, "scope", "workspace", "`WHAT` it limits: workspace, instance, or lane:NAME, account:NAME, agent:OWNER, task:ID, connection:ID")
	fl.StringVar(&f.budget.Dimension, "dimension", "", "`NAME` of what is spent, such as usd (required)")
	fl.StringVar(&f.hard, "hard", "", "no claim may take it above `AMOUNT` (required)")
	fl.StringVar(&f.soft, "soft", "", "note in the audit when it passes `AMOUNT`")
	fl.StringVar(&f.budget.OnHard, "on-hard", "queue", "`WHAT` happens to a task that does not fit: queue, downgrade, refuse or cancel")
	fl.StringVar(&f.budget.DowngradeTo, "downgrade-to", "", "with --on-hard downgrade: to the lane `NAME`")
	fl.Var(&f.rolling, "rolling", "what was used counts for so long, and no longer")
	fl.StringVar(&f.resets, "resets-at", "", "starts anew at `WHEN`: a time, or how long from now")
	fl.Var(&f.every, "every", "with --resets-at: and again each time this is over")
	return c
}

func (f *budgetFlags) complete() (err error) {
	g := &f.budget
	g.Scope, g.Target = splitScope(f.scope)
	if g.Dimension == "" || f.hard == "" {
		return misuse("budget create needs --dimension and --hard").Hinting("as in").Running("budget", "create", "monthly", "--dimension", "usd", "--hard", "100")
	}
	if g.Hard, err = readAmount(f.hard); err != nil {
		return err
	}
	if f.soft != "" {
		soft, err := readAmount(f.soft)
		if err != nil {
			return err
		}
		g.Soft = &soft
	}
	if g.RollingSeconds, err = inSeconds(f.rolling); err != nil {
		return err
	}
	if g.EverySeconds, err = inSeconds(f.every); err != nil {
		return err
	}
	at, from, err := momentOf(f.resets)
	g.ResetsAt, g.ResetsInMS = at, from.Milliseconds()
	return err
}

// readAmount reads an amount that somebody has typed.
func readAmount(text string) (api.Amount, error) {
	n, err := backlog.ParseAmount(text)
	return json.Number(n.String()), err
}

// sayBudget shows what a budget is after it was changed.
func (a *app) sayBudget(v api.Budget, err error) error {
	if err != nil {
		return err
	}
	g := budgetFrom(v)
	a.did("the budget is changed; see: %s", a.line("budget", "show", g.Name))
	if !a.forPeople() {
		return a.printBudget(g)
	}
	window := windowOf(g)
	if window != "" {
		window = ", " + window
	}
	_, err = fmt.Fprintf(a.out, "budget %s: %s of %s %s left%s\n", g.Name, g.Left, g.Hard, g.Dimension, window)
	return err
}

// windowOf says when what was used no longer counts.
func windowOf(g backlog.Budget) string {
	switch {
	case g.Rolling > 0:
		return "over the last " + commands.Lasting(time.Duration(g.Rolling))
	case g.Every > 0:
		return "until " + clock(g.ResetsAt) + " and then every " + commands.Lasting(time.Duration(g.Every))
	case g.ResetsAt != nil:
		return "until " + clock(g.ResetsAt)
	}
	return ""
}

func (a *app) budgetGrantCommand() *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use: "grant NAME AMOUNT", Short: "Raise a budget's hard limit by an amount", Args: cobra.ExactArgs(2),
		Example: "  spawnmesh budget grant monthly 20 --reason 'release week'",
		RunE: func(c *cobra.Command, args []string) error {
			more, err := readAmount(args[1])
			if err != nil {
				return err
			}
			return a.asking(c.Context(), func(ctx context.Context, c *control.Client) error {
				return a.sayBudget(control.Answer(c.API().GrantBudgetWithResponse(ctx, a.workspace, args[0], api.BudgetGrant{Amount: more, Reason: reason})))
			})
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "record `WHY` (required)")
	return c
}

func (a *app) budgetResetCommand() *cobra.Command {
	var r removal
	c := &cobra.Command{
		Use: "reset NAME", Short: "Forget what a budget has spent", Args: cobra.ExactArgs(1),
		Example: "  spawnmesh budget reset monthly --reason 'a test had spent it' --yes",
		RunE: func(c *cobra.Command, args []string) error {
			if err := r.meant(c.Context(), a, "reset", "reset", "budget "+args[0], "what it has spent would be forgotten"); err != nil {
				return err
			}
			return a.asking(c.Context(), func(ctx context.Context, c *control.Client) error {
				return a.sayBudget(control.Answer(c.API().ResetBudgetWithResponse(ctx, a.workspace, args[0], api.Reason{Reason: r.reason})))
			})
		},
	}
	r.flags(c)
	return c
}
