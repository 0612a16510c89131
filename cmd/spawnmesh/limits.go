package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// splitScope reads what --scope says: workspace, instance, or KIND:NAME.
func splitScope(text string) (scope, target string) {
	scope, target, _ = strings.Cut(text, ":")
	return scope, target
}

// scopeOf writes a scope as --scope takes it.
func scopeOf(scope, target string) string { return strings.TrimSuffix(scope+":"+target, ":") }

// A removal is what a destructive command on a limit is told.
type removal struct {
	reason string
	yes    bool
}

func (r *removal) flags(c *cobra.Command) {
	c.Flags().StringVar(&r.reason, "reason", "", "record `WHY` (required)")
	c.Flags().BoolVar(&r.yes, "yes", false, "do not ask whether it is meant")
}

// meant makes sure that there is a reason, and that it is meant in spite of the
// consequence.
func (r *removal) meant(a *app, verb, done, what, consequence string) error {
	if r.reason == "" {
		return misuse("to %s a %s needs a reason", verb, strings.Fields(what)[0]).Hinting("add --reason \"why\"; it is recorded")
	}
	if !r.yes && !a.confirm(consequence+"; "+verb+" "+what+"?") {
		return misuse("%s was not %s: %s", what, done, consequence).Hinting("add --yes if you mean it")
	}
	return nil
}

// limitCommand is a command of the group called what that works on one limit.
func (a *app) limitCommand(use, short string, fn func(ctx context.Context, b *backlog.Workspace, name string) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.withBacklog(c.Context(), func(ctx context.Context, b *backlog.Workspace) error { return fn(ctx, b, args[0]) })
		},
	}
}

// removeCommand is "WHAT remove NAME" for a kind of limit.
func (a *app) removeCommand(what string, remove func(ctx context.Context, b *backlog.Workspace, name, reason string) error) *cobra.Command {
	var r removal
	c := &cobra.Command{
		Use: "remove NAME", Short: "Remove a " + what, Args: cobra.ExactArgs(1),
		Example: "  spawnmesh " + what + " remove " + exampleOf[what] + " --reason 'no longer needed'",
		RunE: func(c *cobra.Command, args []string) error {
			if err := r.meant(a, "remove", "removed", what+" "+args[0], "nothing would hold what it holds back"); err != nil {
				return err
			}
			return a.withBacklog(c.Context(), func(ctx context.Context, b *backlog.Workspace) error {
				if err := remove(ctx, b, args[0], r.reason); err != nil {
					return err
				}
				if a.forPeople() {
					_, err := fmt.Fprintf(a.out, "%s %s is removed\n", what, printable(args[0]))
					return err
				}
				v := map[string]string{"removed": args[0]}
				return a.print(v, []any{v}, table{names: []string{args[0]}})
			})
		},
	}
	r.flags(c)
	return c
}

var exampleOf = map[string]string{"budget": "monthly", "quota": "four-at-once"}

// theOne finds the limit called name.
func theOne[T any](what, name string, list []T, nameOf func(T) string) (T, error) {
	for _, x := range list {
		if nameOf(x) == name {
			return x, nil
		}
	}
	var none T
	return none, commands.Refuse(commands.NotFound, "no %s %q", what, name).Hinting("see").Running(what, "list")
}
