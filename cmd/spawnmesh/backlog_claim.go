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
			w := waiting{in: in, terms: f.terms, until: until, patient: f.wait > 0}
			if w.b, err = a.backlogOf(in); err != nil {
				return err
			}
			got, err := w.claim(ctx)
			if errors.Is(err, errLeaving) || w.patient && in.Gone(err) && ctx.Err() == nil {
				again = true
				return nil
			}
			if err != nil {
				return err
			}
			list = fill(ctx, w.b, f.terms.Owner, got)
			return nil
		})
		if err != nil || !again {
			return errors.Join(err, a.printClaims(list, batch, err))
		}
	}
}

// waiting is one claim on an opened database.
type waiting struct {
	in      *instance.Instance
	b       *backlog.Workspace
	terms   backlog.ClaimTerms
	until   time.Time
	patient bool
}

// errLeaving says that the owner of the database that we use is about to stop it.
var errLeaving = errors.New("the database is about to be stopped")

// betweenAsks is how often a waiting guest asks whether the owner wants to leave.
const betweenAsks = time.Second

// claim claims what can be claimed, and waits for it when it may. A notification
// wakes it; what nobody notifies of, such as a time that has come, it finds by
// looking.
func (w waiting) claim(ctx context.Context) ([]backlog.Claimed, error) {
	list, err := w.look(ctx)
	if err != nil || len(list) > 0 || !w.patient {
		return list, err
	}
	l, err := w.b.Listen(ctx)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	for {
		if list, err = w.look(ctx); err != nil || len(list) > 0 {
			return list, err
		}
		left := time.Until(w.until)
		if left <= 0 {
			return nil, nil
		}
		if w.in.Leaving() {
			return nil, errLeaving
		}
		if err := l.Wait(ctx, min(left, betweenAsks)); err != nil {
			return nil, err
		}
	}
}

// look claims what can be claimed now, after time has moved what it moves.
func (w waiting) look(ctx context.Context) ([]backlog.Claimed, error) {
	if _, err := w.b.Sweep(ctx); err != nil {
		return nil, err
	}
	return w.b.Claim(ctx, w.terms)
}
