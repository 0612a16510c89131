package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

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
			return a.asking(c.Context(), func(ctx context.Context, c *control.Client) error {
				return a.renew(ctx, c, f, time.Duration(ttl))
			})
		},
	}
	c.Flags().StringVar(&fence, "fence", "", "the `FENCE` that claim has printed (required)")
	c.Flags().Var(&ttl, "ttl", "how long it lasts from now, up to 1d; a number is seconds")
	return c
}

func (a *app) renew(ctx context.Context, c *control.Client, f backlog.Fence, ttl time.Duration) error {
	v, err := control.Answer(c.API().RenewBacklogTaskWithResponse(ctx, a.workspace, f.Task, api.Renewal{Fence: f.String(), TTLMS: ttl.Milliseconds()}))
	if err != nil {
		return err
	}
	a.did("the claim lasts until %s; see: %s", clock(&v.Until), a.line("backlog", "show", f.Task))
	if a.forPeople() {
		fmt.Fprintf(a.out, "the claim lasts until %s\n", clock(&v.Until))
		return nil
	}
	return a.print(v, []any{v}, table{names: []string{v.Fence}})
}
