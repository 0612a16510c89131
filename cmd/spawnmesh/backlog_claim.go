package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/internal/instance"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// A claim is a task as its claimer gets it: with the fence to show and the grant
// that proves it.
type claim struct {
	backlog.Task
	Fence string    `json:"fence"`
	Epoch int64     `json:"epoch"`
	Type  string    `json:"type"`
	Grant string    `json:"grant"`
	Until time.Time `json:"until"`
}

// claimFlags are what a claimer says.
type claimFlags struct {
	terms backlog.ClaimTerms
	ttl   seconds
	wait  days
	batch int
}

func (a *app) backlogClaimCommand() *cobra.Command {
	f := claimFlags{ttl: seconds(backlog.DefaultLease)}
	var id string
	c := &cobra.Command{
		Use: "claim [ID]", Short: "Claim the next ready task, and be the only one who has it", Args: cobra.MaximumNArgs(1),
		Long: `Claim the next ready task: the highest priority first, then the oldest. No other
claimer gets it until it is released, or until the time that --ttl gives is over.

Where nothing can be claimed, JSON is null and the exit code is 0; with ID it is
an error that says why. With --batch the JSON is a list.

Show the fence with what you say of the task: renew, complete, fail, release,
block. A claim that runs out is another's to take.`,
		Example: `  spawnmesh backlog claim --owner worker-1 --ttl 600 --json
  spawnmesh backlog claim --wait 5m --capability gpu --lane nightly`,
		RunE: func(c *cobra.Command, args []string) (err error) {
			if f.terms.Task, err = oneName(c, "id", id, args); err != nil {
				return err
			}
			batch := c.Flags().Changed("batch")
			if f.terms.Limit = f.batch; batch && (f.batch < 1 || f.batch > backlog.MaxBatch) {
				return misuse("--batch is from 1 to %d", backlog.MaxBatch)
			}
			if f.terms.Task != "" && (batch || f.wait > 0) {
				return misuse("a claim of one task takes neither --batch nor --wait")
			}
			return a.claim(c.Context(), f, batch)
		},
	}
	fl := c.Flags()
	fl.StringVar(&f.terms.Owner, "owner", defaultOwner(), "claim for the worker `NAME`")
	fl.Var(&f.ttl, "ttl", "how long it lasts unless it is renewed, up to 1d; a number is seconds")
	fl.StringVar(&id, "id", "", "claim only the task `ID`")
	fl.IntVar(&f.batch, "batch", 0, "claim up to `N` tasks at once, at most 1000")
	fl.StringArrayVar(&f.terms.Capabilities, "capability", nil, "this claimer has `NAME` (repeatable)")
	fl.StringArrayVar(&f.terms.Lanes, "lane", nil, "only from the lane `NAME` (repeatable; default: all lanes)")
	fl.Var(&f.wait, "wait", "how long to wait for a task that can be claimed")
	return c
}

func (a *app) claim(ctx context.Context, f claimFlags, batch bool) error {
	f.terms.Lease = time.Duration(f.ttl)
	if f.terms.Owner == "" {
		return misuse("--owner is empty")
	}
	if f.terms.Lease < time.Second || f.terms.Lease > backlog.MaxLease {
		return misuse("--ttl is from 1s to 1d").Hinting("renew a claim that has to last longer: %s backlog renew --fence FENCE", a.self())
	}
	var list []claim
	for until := time.Now().Add(time.Duration(f.wait)); ; {
		again := false
		err := a.withInstance(ctx, func(ctx context.Context, in *instance.Instance) (err error) {
			b, err := a.backlogOf(in)
			if err != nil {
				return err
			}
			got, err := b.ClaimWait(ctx, f.terms, until, in.Leaving)
			list = fill(ctx, b, f.terms.Owner, got)
			if len(got) > 0 {
				return err
			}
			if errors.Is(err, backlog.ErrLeaving) || f.wait > 0 && in.Gone(err) && ctx.Err() == nil {
				again = true
				return nil
			}
			return err
		})
		if err != nil || !again {
			return errors.Join(err, a.printClaims(list, batch, err))
		}
	}
}
