package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// An ours is this project's backlog with everything switched on: forced
// row-level security, the audit, an account's budget and one of the workspace
// that every claim reserves of and every completion settles, jobs that need
// different capabilities, a signed grant with every claim, and, in batches, one
// job in ten that depends on another.
type ours struct {
	db      *store.DB
	backlog *backlog.Workspace
	admin   *pgxpool.Pool // empties tables and looks, for the measurement's sake
	batches atomic.Int64  // numbers the keys of jobs that others depend on
	apart   atomic.Bool   // dependencies are on a completed task: jobs will be claimed and not completed
	ready   chan struct{} // a notification came
}

func newOurs() (contender, error) { return &ours{ready: make(chan struct{}, 1)}, nil }

func (o *ours) open(ctx context.Context, url string) (a about, err error) {
	seed := make([]byte, 32)
	rand.Read(seed)
	signer, err := signing.NewSigner(seed)
	if err != nil {
		return a, err
	}
	o.db, err = store.Open(ctx, store.Config{URL: url, Self: signing.InstanceIDOf(signer.Public()), Signer: signer, PoolSize: maxConns})
	if err != nil {
		return a, err
	}
	if o.admin, err = pgxpool.New(ctx, url); err != nil {
		return a, err
	}
	if o.backlog, err = backlog.Open(o.db, nobodyAsks).Workspace(backlog.MainWorkspace, "bench"); err != nil {
		return a, err
	}
	return about{
		Version: "this tree",
		Settings: "row-level security, audit, grants, 4 capability sets, 2 budgets, estimates, 1 job in 10 of a batch depends on another; " +
			"worked: 4 connections, 500 jobs a claim and a completion; pickup: Listen, poll 20 ms; 16 connections",
	}, o.prepare(ctx)
}

// prepare makes the budgets, and the completed task.
func (o *ours) prepare(ctx context.Context) error {
	most := 9_000_000_000 * backlog.Unit
	for _, b := range []backlog.Budget{
		{Name: "tokens-of-all", Scope: "workspace", Dimension: "tokens", Hard: most},
		{Name: "money-of-bench", Scope: "account", Target: account, Dimension: "usd", Hard: most},
	} {
		if err := o.backlog.SetBudget(ctx, b); err != nil {
			return err
		}
	}
	if _, err := o.backlog.Create(ctx, backlog.TaskSpec{Key: done, Title: "done before"}); err != nil {
		return err
	}
	_, err := o.backlog.Complete(ctx, backlog.Act{Task: done})
	return err
}

func (o *ours) claim(ctx context.Context, n int) ([]held, error) {
	claimed, err := o.backlog.Claim(ctx, backlog.ClaimTerms{
		Owner: "worker", Limit: n, Lease: time.Minute, Capabilities: []string{"gpu", "linux", "python"},
	})
	if err != nil {
		return nil, err
	}
	list := make([]held, len(claimed))
	for i, c := range claimed {
		number, millis, _ := strings.Cut(c.Title, " ")
		var a, b error
		list[i].ref = c.Fence
		list[i].job.Number, a = strconv.Atoi(number)
		list[i].job.Millis, b = strconv.Atoi(millis)
		if err := errors.Join(a, b); err != nil {
			return nil, fmt.Errorf("reading the job %q: %w", c.Title, err)
		}
		if c.Grant == "" {
			return nil, fmt.Errorf("job %d was claimed without a grant", list[i].job.Number)
		}
	}
	return list, nil
}

func (o *ours) complete(ctx context.Context, jobs []held) error {
	fences := make([]backlog.Fence, len(jobs))
	for i, h := range jobs {
		fences[i] = h.ref.(backlog.Fence)
	}
	ok, err := o.backlog.CompleteMany(ctx, fences)
	if err != nil {
		return err
	}
	for i := range ok {
		if !ok[i] {
			return fmt.Errorf("job %d was held by somebody else when it was done", jobs[i].job.Number)
		}
	}
	return nil
}

// work listens while it works. At other times nobody does, as in a backlog that
// is worked on without pause, and no insert has to notify.
func (o *ours) work(ctx context.Context, slots int, do func(job)) error {
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	l, err := o.backlog.Listen(ctx)
	if err != nil {
		return err
	}
	told := make(chan struct{})
	go func() {
		defer close(told)
		for l.Wait(waiting, time.Second) == nil {
			select {
			case o.ready <- struct{}{}:
			default:
			}
		}
	}()
	err = pull(ctx, o, slots, do)
	stop()
	<-told
	l.Close()
	return err
}

func (o *ours) notified() <-chan struct{} { return o.ready }

// empty removes all jobs but keeps the completed task. From then on jobs are
// claimed and not completed, so none may wait for another.
func (o *ours) empty(ctx context.Context) error {
	o.apart.Store(true)
	_, err := o.admin.Exec(ctx, `
		CREATE TEMP TABLE kept ON COMMIT DROP AS SELECT * FROM tasks WHERE key = '`+done+`';
		TRUNCATE tasks, task_bodies, ready, due, parked, dependencies, leases, ended_attempts, ended;
		INSERT INTO tasks SELECT * FROM kept;
		TRUNCATE budget_shards`)
	return err
}

func (o *ours) unfinished(ctx context.Context) (found bool, err error) {
	err = o.admin.QueryRow(ctx, `SELECT EXISTS (SELECT FROM ready) OR EXISTS (SELECT FROM leases) OR EXISTS (SELECT FROM parked)`).Scan(&found)
	return found, err
}

func (o *ours) close() {
	if o.admin != nil {
		o.admin.Close()
	}
	o.db.Close()
}

// nobodyAsks is told of tasks that a connection asked for; here there are none.
func nobodyAsks(context.Context, *store.Tx, []backlog.Moved) error { return nil }
