package backlog_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/scale"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// crowd is several clients that do whatever comes to their minds to the same few
// tasks at the same time.
type crowd struct {
	s   *side
	b   *backlog.Workspace
	top atomic.Int64 // number of the newest name

	mu     sync.Mutex // guards the rest
	fences []backlog.Fence
	wrong  []error
	done   map[string]int // by what came of it
}

// refusals are what a client of a crowd must expect. Anything else is a defect.
var refusals = []commands.Code{commands.Conflict, commands.StaleAttempt, commands.Cycle, commands.NotFound, commands.Capability}

// Eight clients at once, every operation in any order: no outcome but success or
// a refusal with a reason, and a backlog that is consistent at every moment and
// lets all that can be done be done.
func TestModelWithEverybodyAtOnce(t *testing.T) {
	t.Parallel()
	seed := scale.Seed(t, "SPAWNMESH_MODEL_SEED")
	steps := scale.Of(t, "SPAWNMESH_MODEL_STEPS", 125) // of each client
	for round := range max(1, scale.Of(t, "SPAWNMESH_MODEL_CHECKS", 15)/15) {
		s := newSide(t)
		c := &crowd{s: s, b: boardOf(t, s, backlog.MainWorkspace), done: map[string]int{}}
		if (seed+uint64(round))%2 == 0 {
			require.NoError(t, c.b.SetBudget(t.Context(), ample))
		}
		var clients, watch sync.WaitGroup
		ctx, stop := context.WithCancel(t.Context())
		watch.Go(func() { c.watch(ctx) })
		for i := range 8 {
			clients.Go(func() { c.play(ctx, rand.New(rand.NewPCG(seed+uint64(round), uint64(i))), steps) })
		}
		clients.Wait()
		stop()
		watch.Wait()
		require.Empty(t, c.wrong)
		requireInvariants(t, s.URL)
		c.finish(t)
		requireInvariants(t, s.URL)
		t.Logf("%v", c.done)
		for what := range moves {
			require.NotZero(t, c.done[what], "nobody managed to %s", what)
		}
	}
}

// watch looks for a moment at which the backlog is not consistent.
func (c *crowd) watch(ctx context.Context) {
	for ctx.Err() == nil {
		list, err := broken(context.WithoutCancel(ctx), c.s.URL)
		if len(list) > 0 {
			err = fmt.Errorf("while others work: %v", list)
		}
		if err != nil {
			c.blame(err)
			return
		}
	}
}

func (c *crowd) blame(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wrong = append(c.wrong, err)
}

// play makes this many steps, and then more until each move was managed once.
func (c *crowd) play(ctx context.Context, r *rand.Rand, steps int) {
	names := make([]string, 0, len(moves))
	for name := range moves {
		names = append(names, name)
	}
	slices.Sort(names)
	for i := 0; i < steps || i < 8*steps && c.lacks(); i++ {
		what := names[r.IntN(len(names))]
		err := moves[what](c, ctx, r)
		code := commands.CodeOf(err)
		c.mu.Lock()
		switch {
		case err == nil:
			c.done[what]++
		case slices.Contains(refusals, code):
			c.done[string(code)]++
		default:
			c.wrong = append(c.wrong, fmt.Errorf("%s: %w", what, err))
		}
		c.mu.Unlock()
	}
}

// lacks says whether there is a move that nobody managed yet.
func (c *crowd) lacks() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for what := range moves {
		if c.done[what] == 0 {
			return true
		}
	}
	return false
}

// name is one of the newest, so that clients meet.
func (c *crowd) name(r *rand.Rand) string { return fmt.Sprint("k", c.top.Load()-r.Int64N(12)) }

// fresh is a new name, or one that others take at this moment.
func (c *crowd) fresh(r *rand.Rand) string {
	if r.IntN(3) == 0 {
		return fmt.Sprint("k", c.top.Load())
	}
	return fmt.Sprint("k", c.top.Add(1))
}

// fence is mostly one of the newest.
func (c *crowd) fence(r *rand.Rand) *backlog.Fence {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.fences) == 0 {
		return &backlog.Fence{Task: storetest.NewID(), Attempt: 1, Epoch: 1}
	}
	f := c.fences[max(0, len(c.fences)-1-r.IntN(8))]
	return &f
}

func (c *crowd) act(r *rand.Rand) backlog.Act {
	if r.IntN(2) == 0 {
		return backlog.Act{Task: c.name(r)}
	}
	return backlog.Act{Fence: c.fence(r)}
}

// moves are what a client may do. Create and retry come under several names,
// because there is an end to everything.
var moves = map[string]func(*crowd, context.Context, *rand.Rand) error{
	"create": func(c *crowd, ctx context.Context, r *rand.Rand) error {
		s := backlog.TaskSpec{Key: c.fresh(r), Title: "t", Phase: []string{"", "build"}[r.IntN(2)], MaxRetries: r.IntN(2), OnFailedDep: []string{"hold", "cancel", "ignore"}[r.IntN(3)]}
		if r.IntN(2) == 0 {
			s.DependsOn = []string{c.name(r)}
		}
		_, err := c.b.Create(ctx, s)
		return err
	},
	"create one that all create": func(c *crowd, ctx context.Context, r *rand.Rand) error {
		_, err := c.b.Create(ctx, backlog.TaskSpec{Key: c.fresh(r), Title: "t"})
		return err
	},
	"retry": func(c *crowd, ctx context.Context, r *rand.Rand) error {
		return failure(c.b.Retry(ctx, backlog.Act{Task: c.name(r)}))
	},
	"retry again": func(c *crowd, ctx context.Context, r *rand.Rand) error {
		return failure(c.b.Retry(ctx, backlog.Act{Task: c.name(r)}))
	},
	"link":             func(c *crowd, ctx context.Context, r *rand.Rand) error { return c.b.Link(ctx, c.name(r), c.name(r)) },
	"link more":        func(c *crowd, ctx context.Context, r *rand.Rand) error { return c.b.Link(ctx, c.name(r), c.name(r)) },
	"unlink":           (*crowd).unlink,
	"unlink more":      (*crowd).unlink,
	"unlink even more": (*crowd).unlink,
	"claim": func(c *crowd, ctx context.Context, r *rand.Rand) error {
		return c.claim(ctx, backlog.ClaimTerms{Owner: "w", Limit: 1 + r.IntN(3)})
	},
	"claim one": func(c *crowd, ctx context.Context, r *rand.Rand) error {
		return c.claim(ctx, backlog.ClaimTerms{Owner: "w", Task: c.name(r)})
	},
	"renew": func(c *crowd, ctx context.Context, r *rand.Rand) error {
		_, err := c.b.Renew(ctx, *c.fence(r), time.Minute)
		return err
	},
	"lapse": func(c *crowd, ctx context.Context, r *rand.Rand) error {
		return c.s.Exec(`UPDATE leases SET (until, sweep_at) = (clock_timestamp() - interval '1 second', '-infinity') 
			WHERE task IN (SELECT l.task FROM leases l JOIN tasks t ON t.id = l.task WHERE t.key = $1 FOR UPDATE SKIP LOCKED)`, c.name(r))
	},
	"ripen": func(c *crowd, ctx context.Context, r *rand.Rand) error { return c.ripen(ctx) },
	"reclaim": func(c *crowd, ctx context.Context, r *rand.Rand) error {
		_, err := c.b.Reclaim(ctx, []string{"", c.name(r)}[r.IntN(2)])
		return err
	},
	"complete": func(c *crowd, ctx context.Context, r *rand.Rand) error {
		return failure(c.b.Complete(ctx, backlog.Act{Fence: c.fence(r)}))
	},
	"fail":    func(c *crowd, ctx context.Context, r *rand.Rand) error { return failure(c.b.Fail(ctx, c.act(r))) },
	"release": func(c *crowd, ctx context.Context, r *rand.Rand) error { return failure(c.b.Release(ctx, c.act(r))) },
	"block":   func(c *crowd, ctx context.Context, r *rand.Rand) error { return failure(c.b.Block(ctx, c.act(r))) },
	"unblock": func(c *crowd, ctx context.Context, r *rand.Rand) error {
		list, err := c.b.List(ctx, backlog.Filter{State: commands.Blocked})
		if err != nil || len(list) == 0 {
			return err
		}
		return failure(c.b.Unblock(ctx, backlog.Act{Task: list[r.IntN(len(list))].ID}))
	},
	"cancel": func(c *crowd, ctx context.Context, r *rand.Rand) error {
		return failure(c.b.Cancel(ctx, backlog.Act{Task: c.name(r)}))
	},
}

func failure(_ backlog.Task, err error) error { return err }

func (c *crowd) claim(ctx context.Context, t backlog.ClaimTerms) error {
	list, err := c.b.Claim(ctx, t)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range list {
		c.fences = append(c.fences, l.Fence)
	}
	return err
}

func (c *crowd) unlink(ctx context.Context, r *rand.Rand) error {
	t, err := c.b.Show(ctx, c.name(r))
	if err != nil {
		return err
	}
	if len(t.DependsOn) == 0 {
		return c.b.Unlink(ctx, t.ID, t.ID)
	}
	return c.b.Unlink(ctx, t.ID, t.DependsOn[r.IntN(len(t.DependsOn))])
}

// ripen lets the time come for which tasks wait. A task that is in somebody's
// hands is left alone: its place and what it says change together.
func (c *crowd) ripen(ctx context.Context) error {
	err := c.s.Exec(`WITH d AS (
			UPDATE due SET at = '2020-01-01' WHERE task IN (SELECT d.task FROM tasks t JOIN due d ON d.task = t.id FOR UPDATE SKIP LOCKED) RETURNING task
		) UPDATE tasks SET not_before = '2020-01-01' WHERE id IN (SELECT task FROM d)`)
	if err != nil {
		return err
	}
	_, err = c.b.Sweep(ctx)
	return err
}

// finish does all that can be done: what remains waits for a task that failed.
func (c *crowd) finish(t *testing.T) {
	blocked, err := c.b.List(t.Context(), backlog.Filter{State: commands.Blocked, Limit: 1000})
	require.NoError(t, err)
	for _, b := range blocked {
		_, err := c.b.Unblock(t.Context(), backlog.Act{Task: b.ID})
		require.NoError(t, err)
	}
	require.NoError(t, c.s.Exec(`UPDATE leases SET (until, sweep_at) = ('2020-01-01', '-infinity')`))
	for {
		require.NoError(t, c.ripen(t.Context()))
		list := claimCards(t, c.b, nil)
		if len(list) == 0 {
			break
		}
		for _, l := range list {
			_, err := c.b.Complete(t.Context(), backlog.Act{Fence: &l.Fence})
			require.NoError(t, err)
		}
	}
	rest, err := c.b.List(t.Context(), backlog.Filter{Status: backlog.BoardReady, Limit: 1000})
	require.NoError(t, err)
	for _, r := range rest {
		require.Equal(t, backlog.WaitingDeps, r.Eligibility, "%s is left", r.Name())
	}
}
