package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

const scopesOfFreezes = "`WHAT`: workspace, instance, lane:NAME, account:NAME or connection:NAME (required)"

func (a *app) freezeCommand() *cobra.Command {
	var scope, reason string
	c := &cobra.Command{
		Use: "freeze", Short: "Let nothing be claimed until it is unfrozen", Args: cobra.NoArgs,
		Long: `Let nothing be claimed until it is unfrozen. What is claimed already goes on.

At a hub, instance and connection:NAME hold for agents on spokes, too: no order is
taken, and no spoke starts what it was ordered before, from when it has heard of it;
those that have not are named. A spoke that is away learns of it when it is back,
before it starts anything else.`,
		Example: `  spawnmesh freeze --scope instance --reason 'bad deploy'
  spawnmesh freeze --scope connection:attic --reason 'its disk is being replaced'
  spawnmesh freeze list`,
		RunE: func(c *cobra.Command, _ []string) error {
			if scope == "" || reason == "" {
				return misuse("freeze needs --scope and --reason").Hinting("the reason is recorded; as in").Running("freeze", "--scope", "workspace", "--reason", "WHY")
			}
			return a.asking(c.Context(), func(ctx context.Context, c *control.Client) error { return a.freeze(ctx, c, scope, reason) })
		},
	}
	a.inWorkspace(c)
	c.Flags().StringVar(&scope, "scope", "", scopesOfFreezes)
	c.Flags().StringVar(&reason, "reason", "", "record `WHY` (required)")
	c.AddCommand(&cobra.Command{
		Use: "list", Short: "List what is frozen, by whom and why", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.asking(c.Context(), func(ctx context.Context, c *control.Client) error {
				list, err := control.Answer(c.API().ListFreezesWithResponse(ctx, a.workspace))
				if err != nil {
					return err
				}
				return a.printFreezes(each(list.Items, freezeFrom))
			})
		},
	})
	return c
}

func (a *app) unfreezeCommand() *cobra.Command {
	var scope, reason string
	c := &cobra.Command{
		Use: "unfreeze", Short: "Let what was frozen be claimed again", Args: cobra.NoArgs,
		Example: "  spawnmesh unfreeze --scope workspace --reason 'rolled back'",
		RunE: func(c *cobra.Command, _ []string) error {
			if scope == "" || reason == "" {
				return misuse("unfreeze needs --scope and --reason").Hinting("what is frozen").Running("freeze", "list")
			}
			return a.asking(c.Context(), func(ctx context.Context, c *control.Client) error { return a.unfreeze(ctx, c, scope, reason) })
		},
	}
	a.inWorkspace(c)
	c.Flags().StringVar(&scope, "scope", "", scopesOfFreezes)
	c.Flags().StringVar(&reason, "reason", "", "record `WHY` (required)")
	return c
}

// already goes on with a sentence that says what is stopped: by another word, which stays.
func already(by string, since time.Time, reason string) string {
	return fmt.Sprintf(" already, by %s since %s: %s; the reason stays, and nothing was changed", printable(by), clock(&since), printable(commands.OneLine(reason)))
}

func (a *app) freeze(ctx context.Context, c *control.Client, text, reason string) error {
	scope, target := splitScope(text)
	v, err := control.Answer(c.API().FreezeWithResponse(ctx, a.workspace, api.FreezeChange{Scope: scope, Target: target, Reason: reason}))
	if err != nil {
		return err
	}
	if scope == "lane" {
		a.noteEmptyLane(ctx, c, target)
	}
	a.did("%s is frozen; see: %s", text, a.line("freeze", "list"))
	if a.forPeople() && v.Already {
		_, err := fmt.Fprintf(a.out, "%s is frozen%s\n", printable(text), already(v.Actor, v.Since, v.Reason))
		return err
	}
	if a.forPeople() {
		_, err := fmt.Fprintf(a.out, "%s is frozen: %s\n%s", printable(text), a.whatFreezes(ctx, c, scope, target), a.notHeard(v.Unheard))
		return err
	}
	is := frozen{text, true, v.Already, v.Unheard}
	return a.print(is, []any{is}, table{names: []string{text}})
}

// noteEmptyLane says of a lane that a freeze names that nothing is in it: the name may be mistyped. The lane of orders is always
// one, and so is a lane that somebody has set.
func (a *app) noteEmptyLane(ctx context.Context, c *control.Client, name string) {
	list, err := control.Answer(c.API().ListLanesWithResponse(ctx, a.workspace))
	if err != nil || name == backlog.DefaultLane || slices.ContainsFunc(list.Items, func(l api.Lane) bool { return l.Name == name }) {
		return
	}
	fmt.Fprintf(a.err, "nothing is queued or claimed in the lane %s now; what is: %s\n", printable(name), a.line("lane", "list"))
}

// whatFreezes says what a freeze holds: at a hub some hold agents on spokes, and others do not.
func (a *app) whatFreezes(ctx context.Context, c *control.Client, scope, target string) string {
	goesOn := func(words ...string) string {
		return "what runs goes on; to end it: " + a.line(slices.Concat([]string{"kill"}, words, []string{"--reason", "WHY"})...)
	}
	v, err := askRunning(ctx, c)
	hub := err == nil && v.Role != "spoke"
	switch {
	case hub && scope == "instance":
		return "no order is taken, no spoke that knows of it starts what it was ordered, and nothing is claimed from the backlog; " + goesOn("--all")
	case scope == "connection":
		if v, err := connectionNamed(ctx, c, target); err == nil && !isSpoke(v) {
			return "nothing that it orders is started here"
		}
		return "no order is taken for it, and it starts nothing that it was ordered; " + goesOn("--spoke", target)
	case hub:
		return "nothing is claimed from it; agents on spokes go on, and are ordered as before"
	}
	if err == nil && (scope == "instance" || scope == "workspace") {
		return "nothing that hubs order is started, and nothing is claimed from it; what runs goes on"
	}
	return "nothing is claimed from it"
}

// frozen is what a program learns of a freeze that was set or lifted.
type frozen struct {
	Scope   string   `json:"scope"`
	Frozen  bool     `json:"frozen"`
	Already bool     `json:"already,omitempty"` // it was frozen before, and nothing was changed
	Unheard []string `json:"unheard,omitempty"` // spokes that have not said yet that they know of it
}

// notHeard is a line about the spokes that do not know of a freeze yet.
func (a *app) notHeard(spokes []string) string {
	if len(spokes) == 0 {
		return ""
	}
	const most = 5
	names := printable(strings.Join(spokes[:min(len(spokes), most)], ", "))
	if n := len(spokes) - most; n > 0 {
		names += fmt.Sprintf(" and %d more", n)
	}
	return names + ": not heard of it yet, and may start what is accepted there until then; why: " + a.line("why", spokes[0]) + "\n"
}

func (a *app) unfreeze(ctx context.Context, c *control.Client, text, reason string) error {
	scope, target := splitScope(text)
	_, err := control.Answer(c.API().UnfreezeWithResponse(ctx, a.workspace, api.FreezeChange{Scope: scope, Target: target, Reason: reason}))
	if err != nil {
		return err
	}
	a.did("%s is no longer frozen; see: %s", text, a.line("freeze", "list"))
	if a.forPeople() {
		_, err := fmt.Fprintf(a.out, "%s is no longer frozen\n", printable(text))
		return err
	}
	is := frozen{Scope: text}
	return a.print(is, []any{is}, table{names: []string{text}})
}

func (a *app) printFreezes(list []backlog.Freeze) error {
	t := table{head: []string{"SCOPE", "SINCE", "BY", "WHY"}, empty: "nothing is frozen"}
	for _, f := range list {
		t.names = append(t.names, scopeOf(f.Scope, f.Target))
		t.rows = append(t.rows, []string{scopeOf(f.Scope, f.Target), clock(&f.Since), f.Actor, f.Reason})
	}
	return printList(a, list, t)
}
