package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/internal/wait"
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
	ask   api.BacklogClaim
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
			if f.ask.Task, err = oneName(c, "id", id, args); err != nil {
				return err
			}
			batch := c.Flags().Changed("batch")
			if f.ask.Limit = f.batch; batch && (f.batch < 1 || f.batch > backlog.MaxBatch) {
				return misuse("--batch is from 1 to %d", backlog.MaxBatch)
			}
			if f.ask.Task != "" && (batch || f.wait > 0) {
				return misuse("a claim of one task takes neither --batch nor --wait")
			}
			return a.claim(c.Context(), f, batch)
		},
	}
	fl := c.Flags()
	fl.StringVar(&f.ask.Owner, "owner", defaultOwner(), "claim for the worker `NAME`")
	fl.Lookup("owner").DefValue = "USER@HOST"
	fl.Var(&f.ttl, "ttl", "how long it lasts unless it is renewed, up to 1d; a number is seconds")
	fl.StringVar(&id, "id", "", "claim only the task `ID`")
	fl.IntVar(&f.batch, "batch", 0, "claim up to `N` tasks at once, at most 1000")
	fl.StringArrayVar(&f.ask.Capabilities, "capability", nil, "this claimer has `NAME` (repeatable)")
	fl.StringArrayVar(&f.ask.Lanes, "lane", nil, "only from the lane `NAME` (repeatable; default: all lanes)")
	fl.Var(&f.wait, "wait", "how long to wait for a task that can be claimed")
	return c
}

func (a *app) claim(ctx context.Context, f claimFlags, batch bool) error {
	if f.ask.Owner == "" {
		return misuse("--owner is empty")
	}
	lease := time.Duration(f.ttl)
	if lease < time.Second || lease > backlog.MaxLease {
		return misuse("--ttl is from 1s to 1d").Hinting("renew a claim that has to last longer: %s backlog renew --fence FENCE", a.self())
	}
	f.ask.TTLMS = lease.Milliseconds()
	got, err := a.awaitClaims(ctx, f.ask, time.Duration(f.wait))
	if err == nil && got.Problem != nil {
		err = control.Refused(got.Problem)
	}
	return errors.Join(err, a.printClaims(each(got.Items, claimFrom), batch, err))
}

// awaitClaims asks for claims until there are some, or the time to wait is over. Whoever has the
// database may stop meanwhile; then another one has it, or this process.
func (a *app) awaitClaims(ctx context.Context, ask api.BacklogClaim, patience time.Duration) (got api.BacklogClaims, err error) {
	for until := time.Now().Add(patience); ; {
		left := false
		err = a.asking(ctx, func(ctx context.Context, c *control.Client) error {
			got, left, err = a.claimOf(ctx, c, ask, until)
			return err
		})
		if !left {
			return got, err
		}
		if err := wait.For(ctx, betweenTries); err != nil {
			return got, err
		}
	}
}

const (
	betweenTries = 50 * time.Millisecond
	longestPoll  = 30 * time.Second
)

// claimOf is awaitClaims of one instance. It reports whether that has left before the time was over.
func (a *app) claimOf(ctx context.Context, c *control.Client, ask api.BacklogClaim, until time.Time) (got api.BacklogClaims, left bool, err error) {
	for {
		began, poll := time.Now(), min(max(time.Until(until), 0), longestPoll)
		got, err = control.Answer(c.API().ClaimBacklogTasksWithResponse(ctx, a.workspace, &api.ClaimBacklogTasksParams{Wait: poll.String()}, ask))
		switch {
		case len(got.Items) > 0 || time.Until(until) <= 0:
			return got, false, err
		case commands.CodeOf(err) == commands.Unreachable && ctx.Err() == nil:
			return got, true, nil
		case err != nil:
			return got, false, err
		case time.Since(began) < poll:
			return got, true, nil
		}
	}
}
