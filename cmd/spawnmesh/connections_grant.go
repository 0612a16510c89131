package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/store"
)

func (a *app) connectionGrantCommand() *cobra.Command {
	var kinds, runtimes []string
	var expires string
	var weight int
	c := &cobra.Command{
		Use: "grant NAME", Short: "Change what a hub may ask of this spoke", Args: cobra.ExactArgs(1),
		Long: `Change what a hub may ask of this spoke. Only what is given changes; what is running
goes on. What may run at all is decided by the policy, for all hubs alike.

Slots are shared by weight when several hubs have work: one with weight 2 has twice
the share of one with weight 1. What one hub does not use the others have.`,
		Example: `  spawnmesh connections grant lab --weight 3
  spawnmesh connections grant lab --kinds agent.status,agent.kill --expires 30d`,
		RunE: func(c *cobra.Command, args []string) error {
			var set api.GrantChange
			f := c.Flags()
			if f.Changed("kinds") {
				set.Kinds = &kinds
			}
			if f.Changed("runtimes") {
				set.Runtimes = &runtimes
			}
			if f.Changed("weight") {
				set.Weight = &weight
			}
			if f.Changed("expires") {
				until, err := expiry(expires, time.Now())
				if err != nil {
					return err
				}
				set.Expires = &until
			}
			if set == (api.GrantChange{}) {
				return misuse("nothing is to be changed").Hinting("give one or more of --kinds, --runtimes, --expires, --weight; to see the grant").Running("connections", "show", args[0])
			}
			return a.setGrant(c.Context(), args[0], set)
		},
	}
	f := c.Flags()
	f.StringSliceVar(&kinds, "kinds", nil, "the `KINDS` of orders it may give: "+strings.Join(store.FullGrant().Kinds, ", "))
	f.StringSliceVar(&runtimes, "runtimes", nil, "the `RUNTIMES` it may ask for: exec, noop")
	f.StringVar(&expires, "expires", "", "`WHEN` all of it ends: a time, a duration from now, or never")
	f.IntVar(&weight, "weight", 1, "its share of the slots, `N` from 1 to 1000")
	return c
}

// expiry reads when a grant ends; never is the zero time.
func expiry(text string, now time.Time) (time.Time, error) {
	if text == "never" {
		return time.Time{}, nil
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at, nil
	}
	var d days
	if err := d.Set(text); err != nil || d <= 0 {
		return time.Time{}, misuse("--expires: %q is neither a time such as 2030-01-31T12:00:00Z nor a duration such as 30d, nor never", text)
	}
	return now.Add(time.Duration(d)), nil
}

func (a *app) setGrant(ctx context.Context, name string, set api.GrantChange) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	g, err := control.Read[store.GrantTerms](c.API().ChangeGrant(ctx, name, set))
	if err != nil {
		return err
	}
	a.did("the grant of %s is changed; see: %s", name, a.line("connections", "show", name))
	if a.forPeople() {
		_, err := fmt.Fprintf(a.out, "%s may now ask for: %s\n", name, g)
		return err
	}
	return a.print(g, []any{g}, table{names: []string{name}})
}
