package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/spawnmesh/spawnmesh/internal/bench/record"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// A backlog is one size at which the cost of a claim is measured.
type backlogSize struct {
	name        string
	ready       int // tasks that the claimer may have
	unclaimable int // tasks in front of them that it may not
	history     int // tasks that have ended
}

// curveSizes are P3 and P9 of the targets; the first is the yardstick.
var curveSizes = []backlogSize{
	{"10 k ready", 10_000, 0, 0},
	{"100 k ready", 100_000, 0, 0},
	{"1 M ready", 1_000_000, 0, 0},
	{"100 k unclaimable in front of 10 k", 10_000, 100_000, 0},
	{"500 k unclaimable in front of 500 k", 500_000, 500_000, 0},
	{"10 k ready, 10 M ended", 10_000, 0, 10_000_000},
}

// A curveFigures is what was measured at one size, in milliseconds.
type curveFigures struct {
	single, batch, show, list []float64 // batch: per task of 100
}

// A curvePoint is one size with its own database.
type curvePoint struct {
	backlogSize
	o     *ours
	found curveFigures
}

// curve measures what a claim, a look at one task and a list cost as the backlog
// grows. All sizes exist side by side and take turns, so that a slow minute
// meets each.
func curve(ctx context.Context, args []string) (err error) {
	f := flag.NewFlagSet("peers curve", flag.ContinueOnError)
	scale := f.Int("divide", 1, "divide all sizes by this")
	rounds := f.Int("rounds", 20, "rounds; each does 100 single claims and 10 of 100 tasks")
	settings := f.String("settings", "usual", "settings of the server: usual or shipped")
	json := f.String("json", "", "write everything that was found to this file")
	if err := f.Parse(args); err != nil {
		return err
	}
	if *scale < 1 || *rounds < 1 {
		return errors.New("-divide and -rounds are at least 1")
	}
	r := curveResult{Origin: record.Here(), Settings: *settings}
	s, err := startServer(ctx, *settings)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close(context.WithoutCancel(ctx))) }()
	var points []*curvePoint
	for i, size := range curveSizes {
		size.ready, size.unclaimable, size.history = size.ready / *scale, size.unclaimable / *scale, size.history / *scale
		p := &curvePoint{backlogSize: size}
		if err := p.fill(ctx, s, fmt.Sprint("curve", i)); err != nil {
			return fmt.Errorf("%s: %w", size.name, err)
		}
		defer p.o.close()
		points = append(points, p)
	}
	for range *rounds {
		for _, p := range points {
			if err := p.round(ctx); err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
		}
	}
	for _, p := range points {
		r.Points = append(r.Points, p.row())
	}
	showCurve(os.Stdout, r.Points)
	return record.Write(*json, r)
}

// fill makes the database of one size.
func (p *curvePoint) fill(ctx context.Context, s *server, database string) error {
	if err := s.fresh(ctx, database); err != nil {
		return err
	}
	address, err := s.url(database)
	if err != nil {
		return err
	}
	p.o = &ours{ready: make(chan struct{}, 1)}
	p.o.apart.Store(true)
	if _, err := p.o.open(ctx, address); err != nil {
		return err
	}
	began := time.Now()
	if err := p.add(ctx, p.ready, spec); err != nil {
		return err
	}
	inFront := func(j job) backlog.TaskSpec {
		t := spec(j)
		t.Priority, t.Capabilities = 50, []string{"quantum"}
		return t
	}
	if err := p.add(ctx, p.unclaimable, inFront); err != nil {
		return err
	}
	if err := s.exec(ctx, database, fmt.Sprintf(history, p.history), fmt.Sprintf(historyEnds, p.history), fmt.Sprintf(historyTally, p.history)); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "%s: filled in %s\n", p.name, time.Since(began).Round(time.Second))
	return s.settle(ctx, database)
}

// A long history, as years of claims and completions leave it.
const (
	history = `INSERT INTO tasks (id, title, class, state, attempt, epoch, created_at, updated_at, started_at, ended_at, created_by, last_type, last_owner, last_claim, last_claimed_at, last_outcome)
		SELECT ('01800000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 'job ' || n, 1, 'completed', 1, 1, now(), now(), now(), now(), 'bench', 'initial', 'worker', '01800000-0000-7000-8000-000000000000', now(), 'succeeded' FROM generate_series(1, %d) AS n`
	historyEnds = `INSERT INTO ended (task, workspace, lane, state)
		SELECT ('01800000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 'main', 'default', 'completed' FROM generate_series(1, %d) AS n`
	historyTally = `INSERT INTO tallies (workspace, lane, what, n) VALUES ('main', 'default', 'completed', %d)`
)

func (p *curvePoint) add(ctx context.Context, n int, as func(job) backlog.TaskSpec) error {
	for at := 0; at < n; at += 1000 {
		specs := make([]backlog.TaskSpec, min(1000, n-at))
		for i := range specs {
			specs[i] = as(job{Number: at + i})
		}
		if _, err := p.o.backlog.Create(ctx, specs...); err != nil {
			return err
		}
	}
	return nil
}

// round claims, looks, and puts in as many tasks as it took out.
func (p *curvePoint) round(ctx context.Context) error {
	var took []held
	timed := func(times *[]float64, share int, do func() error) error {
		at := time.Now()
		err := do()
		*times = append(*times, float64(time.Since(at).Microseconds())/1000/float64(share))
		return err
	}
	claim := func(n int) func() error {
		return func() error {
			list, err := p.o.claim(ctx, n)
			if err == nil && len(list) != n {
				err = fmt.Errorf("%d of %d were there", len(list), n)
			}
			took = append(took, list...)
			return err
		}
	}
	var errs []error
	for range 100 {
		errs = append(errs, timed(&p.found.single, 1, claim(1)))
	}
	for range 10 {
		errs = append(errs, timed(&p.found.batch, 100, claim(100)))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for range 20 {
		errs = append(errs, timed(&p.found.show, 1, func() error { _, err := p.o.backlog.Show(ctx, took[0].ref.(backlog.Fence).Task); return err }),
			timed(&p.found.list, 1, func() error {
				_, err := p.o.backlog.List(ctx, backlog.Filter{Status: backlog.BoardClaimed, Limit: 50})
				return err
			}))
	}
	return errors.Join(append(errs, p.o.complete(ctx, took), p.add(ctx, len(took), spec))...)
}
