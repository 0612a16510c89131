package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
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
func (r *removal) meant(ctx context.Context, a *app, verb, done, what, consequence string) error {
	if r.reason == "" {
		return misuse("to %s a %s needs a reason", verb, strings.Fields(what)[0]).Hinting("add --reason \"why\"; it is recorded")
	}
	if r.yes {
		return nil
	}
	return a.meant(ctx, consequence+"; "+verb+" "+what+"?", misuse("%s was not %s: %s", what, done, consequence).Hinting("add --yes if you mean it"))
}

// limitCommand is a command of the group called what that works on one limit.
func (a *app) limitCommand(use, short string, fn func(ctx context.Context, c *api.ClientWithResponses, name string) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.asking(c.Context(), func(ctx context.Context, c *control.Client) error { return fn(ctx, c.API(), args[0]) })
		},
	}
}

// removeCommand is "WHAT remove NAME" for a kind of limit.
func (a *app) removeCommand(what string, remove func(ctx context.Context, c *api.ClientWithResponses, name string, why api.Reason) (api.Removal, error)) *cobra.Command {
	var r removal
	c := &cobra.Command{
		Use: "remove NAME", Short: "Remove a " + what, Args: cobra.ExactArgs(1),
		Example: "  spawnmesh " + what + " remove " + exampleOf[what] + " --reason 'no longer needed'",
		RunE: func(c *cobra.Command, args []string) error {
			if err := r.meant(c.Context(), a, "remove", "removed", what+" "+args[0], "nothing would hold what it holds back"); err != nil {
				return err
			}
			return a.asking(c.Context(), func(ctx context.Context, c *control.Client) error {
				v, err := remove(ctx, c.API(), args[0], api.Reason{Reason: r.reason})
				if err != nil {
					return err
				}
				a.did("%s %s is removed", what, args[0])
				if a.forPeople() {
					_, err := fmt.Fprintf(a.out, "%s %s is removed\n", what, printable(args[0]))
					return err
				}
				return a.print(v, []any{v}, table{names: []string{args[0]}})
			})
		},
	}
	r.flags(c)
	return c
}

var exampleOf = map[string]string{"budget": "monthly", "quota": "four-at-once"}

// inSeconds is the length of a window.
func inSeconds(d days) (int64, error) {
	if time.Duration(d)%time.Second != 0 {
		return 0, misuse("a window of %s is not a whole number of seconds", commands.Lasting(time.Duration(d)))
	}
	return int64(time.Duration(d) / time.Second), nil
}
