package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/instance"
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
			return a.swept(c.Context(), func(ctx context.Context, b *backlog.Workspace) error {
				list, err := b.Budgets(ctx)
				if err != nil {
					return err
				}
				return a.printBudgets(list)
			})
		},
	}
	show := a.limitCommand("show NAME", "Show one budget", func(ctx context.Context, b *backlog.Workspace, name string) error {
		g, err := budgetOf(ctx, b, name)
		if err != nil {
			return err
		}
		return a.printBudget(g)
	})
	c.AddCommand(a.budgetCreateCommand(), list, show, a.budgetGrantCommand(), a.budgetResetCommand(),
		a.removeCommand("budget", func(ctx context.Context, b *backlog.Workspace, name, reason string) error {
			return b.RemoveBudget(ctx, name, reason)
		}))
	return c
}

// budgetFlags are what the operator says about a budget.
type budgetFlags struct {
	budget         backlog.Budget
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
			return a.makingInstance(c.Context(), func(ctx context.Context, in *instance.Instance) error { return a.setBudget(ctx, in, f) })
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
	g.Rolling, g.Every = backlog.Seconds(f.rolling), backlog.Seconds(f.every)
	if g.Dimension == "" || f.hard == "" {
		return misuse("budget create needs --dimension and --hard").Hinting("as in").Running("budget", "create", "monthly", "--dimension", "usd", "--hard", "100")
	}
	if g.Hard, err = backlog.ParseAmount(f.hard); err != nil {
		return err
	}
	if f.soft != "" {
		soft, err := backlog.ParseAmount(f.soft)
		if err != nil {
			return err
		}
		g.Soft = &soft
	}
	return nil
}

func (a *app) setBudget(ctx context.Context, in *instance.Instance, f budgetFlags) error {
	b, err := a.backlogOf(in)
	if err != nil {
		return err
	}
	at, from, err := momentOf(f.resets)
	if err != nil {
		return err
	}
	if from > 0 {
		now, err := in.DB.Now(ctx)
		if err != nil {
			return err
		}
		at = now.Add(from)
	}
	if !at.IsZero() {
		f.budget.ResetsAt = &at
	}
	if err := b.SetBudget(ctx, f.budget); err != nil {
		return err
	}
	g, err := budgetOf(ctx, b, f.budget.Name)
	if err != nil {
		return err
	}
	return a.sayBudget(g)
}

func budgetOf(ctx context.Context, b *backlog.Workspace, name string) (backlog.Budget, error) {
	list, err := b.Budgets(ctx)
	if err != nil {
		return backlog.Budget{}, err
	}
	return theOne("budget", name, list, func(g backlog.Budget) string { return g.Name })
}

// sayBudget shows what a budget is after it was changed.
func (a *app) sayBudget(g backlog.Budget) error {
	a.did("the budget is changed; see: %s", a.line("budget", "show", g.Name))
	if !a.forPeople() {
		return a.printBudget(g)
	}
	window := windowOf(g)
	if window != "" {
		window = ", " + window
	}
	_, err := fmt.Fprintf(a.out, "budget %s: %s of %s %s left%s\n", g.Name, g.Left, g.Hard, g.Dimension, window)
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
			if reason == "" {
				return misuse("to raise a budget needs a reason").Hinting("add --reason \"why\"; it is recorded")
			}
			more, err := backlog.ParseAmount(args[1])
			if err != nil {
				return err
			}
			return a.withBacklog(c.Context(), func(ctx context.Context, b *backlog.Workspace) error {
				g, err := b.GrantBudget(ctx, args[0], more, reason)
				if err != nil {
					return err
				}
				return a.sayBudget(g)
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
			if err := r.meant(a, "reset", "reset", "budget "+args[0], "what it has spent would be forgotten"); err != nil {
				return err
			}
			return a.withBacklog(c.Context(), func(ctx context.Context, b *backlog.Workspace) error {
				g, err := b.ResetBudget(ctx, args[0], r.reason)
				if err != nil {
					return err
				}
				return a.sayBudget(g)
			})
		},
	}
	r.flags(c)
	return c
}
