package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// fill adds to each claim all that is known of its task.
func fill(ctx context.Context, b *backlog.Workspace, owner string, got []backlog.Claimed) []claim {
	ids := make([]string, len(got))
	for i, g := range got {
		ids[i] = g.Fence.Task
	}
	known := map[string]backlog.Task{}
	tasks, _ := b.ShowAll(ctx, ids) // the claims stand: their claimer must learn of them all the same
	for _, t := range tasks {
		known[t.ID] = t
	}
	list := make([]claim, len(got))
	for i, g := range got {
		t, ok := known[g.Fence.Task]
		if !ok {
			t = backlog.Task{ID: g.Fence.Task, ShortID: commands.ShortID(g.Fence.Task), Key: g.Key, Title: g.Title, Body: g.Body, Priority: g.Priority, Status: backlog.BoardClaimed,
				State: commands.Claimed, Lane: g.Lane, Acceptance: g.Acceptance, Owner: owner, LeaseUntil: &g.Until, Attempts: g.Fence.Attempt}
		}
		list[i] = claim{t, g.Fence.String(), g.Fence.Epoch, g.Type, g.Grant, g.Until}
	}
	return list
}

func (a *app) printClaims(list []claim, batch bool, failed error) error {
	if failed != nil && len(list) == 0 {
		return nil
	}
	var names []string
	for _, c := range list {
		names = append(names, c.Ref())
	}
	if len(list) > 0 {
		a.did("claimed %s, and the fence is lost; give it back: %s", strings.Join(names, ", "), a.line("backlog", "reclaim", "--id", names[0]))
	}
	switch {
	case a.forPeople() && len(list) == 0:
		fmt.Fprintf(a.err, "nothing can be claimed now; what keeps a task: %s backlog why ID\n", a.self())
		return nil
	case a.forPeople():
		return a.sayClaims(list)
	case batch:
		return printList(a, list, table{names: names})
	case len(list) == 0 && a.output == "json":
		return a.printJSON(nil)
	case len(list) == 0 && a.output == "ndjson":
		return a.printLine(nil)
	case len(list) == 0:
		return nil
	}
	return a.print(list[0], anys(list), table{names: names})
}

func (a *app) sayClaims(list []claim) error {
	for i, c := range list {
		if i > 0 {
			fmt.Fprintln(a.out)
		}
		var p pairs
		p.add("claimed", c.Name())
		p.add("title", c.Title)
		p.add("until", clock(&c.Until))
		p.add("fence", c.Fence)
		p.add("grant", c.Grant)
		for _, text := range criteria(c.Acceptance) {
			p.add("acceptance", text)
		}
		if err := a.align(p, 0); err != nil {
			return err
		}
		if c.Body != "" {
			fmt.Fprintf(a.out, "\n%s\n", printable(c.Body))
		}
	}
	fence := "FENCE"
	if len(list) == 1 {
		fence = list[0].Fence
	}
	fmt.Fprintf(a.err, "\nwhen it is done: %s backlog complete --fence %s\n", a.self(), fence)
	return nil
}

func (a *app) backlogRenewCommand() *cobra.Command {
	var fence string
	ttl := seconds(backlog.DefaultLease)
	c := &cobra.Command{
		Use: "renew", Short: "Make a claim last longer", Args: cobra.NoArgs,
		Example: "  spawnmesh backlog renew --fence FENCE --ttl 15m",
		RunE: func(c *cobra.Command, _ []string) error {
			if fence == "" {
				return misuse("backlog renew needs --fence").Hinting("claim has printed it")
			}
			f, err := backlog.ParseFence(fence)
			if err != nil {
				return err
			}
			if d := time.Duration(ttl); d < time.Second || d > backlog.MaxLease {
				return misuse("--ttl is from 1s to 1d")
			}
			return a.withBacklog(c.Context(), func(ctx context.Context, b *backlog.Workspace) error { return a.renew(ctx, b, f, time.Duration(ttl)) })
		},
	}
	c.Flags().StringVar(&fence, "fence", "", "the `FENCE` that claim has printed (required)")
	c.Flags().Var(&ttl, "ttl", "how long it lasts from now, up to 1d; a number is seconds")
	return c
}

func (a *app) renew(ctx context.Context, b *backlog.Workspace, f backlog.Fence, ttl time.Duration) error {
	until, err := b.Renew(ctx, f, ttl)
	if err != nil {
		return err
	}
	v := struct {
		Fence string    `json:"fence"`
		Until time.Time `json:"until"`
	}{f.String(), until}
	if a.forPeople() {
		fmt.Fprintf(a.out, "the claim lasts until %s\n", clock(&until))
		return nil
	}
	return a.print(v, []any{v}, table{names: []string{v.Fence}})
}
