package main

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// The phases of a round, by the names that go to a contender's process.
const (
	phaseInsertOne  = "insert-one"  // one job a call, 8 connections
	phaseInsertMany = "insert-many" // 1,000 jobs a call, 4 connections
	phaseWorked     = "worked"      // all jobs that are there, from the first start to the last one done
	phaseRefill     = "refill"      // not measured: as many queued jobs as a claim phase takes, and no others
	phaseClaim1     = "claim-1"     // one job a claim, 16 connections
	phaseClaim100   = "claim-100"   // 4 connections
	phaseClaim500   = "claim-500"   // 2 connections
	phasePickup     = "pickup"      // from before the insert to the start, 100 jobs/s for 10 s
	phaseBacklog    = "backlog"     // not measured: jobs of lower priority that take 100 ms each
	phasePickupBig  = "pickup-big"  // pickup while those wait, with 200 slots, all taken
)

const (
	insertBatch  = 1000
	pickupRate   = 100 // jobs per second
	pickupTime   = 10 * time.Second
	backlogJobs  = 1_000_000
	backlogSlots = 200
)

// A values is what a phase found, by name: rates per second, times in ms.
type values map[string]float64

// measure runs one phase with n jobs.
func measure(ctx context.Context, c contender, phase string, n int) (values, error) {
	switch phase {
	case phaseInsertOne:
		rate, err := inserted(ctx, c, n, 8, 1, false)
		return values{phase: rate}, err
	case phaseInsertMany:
		rate, err := inserted(ctx, c, n, 4, insertBatch, false)
		return values{phase: rate}, err
	case phaseBacklog:
		_, err := inserted(ctx, c, n, 4, insertBatch, true)
		return nil, err
	case phaseWorked:
		return worked(ctx, c, n)
	case phasePickup:
		return pickup(ctx, c, phase, riverWorkers)
	case phasePickupBig:
		return pickup(ctx, c, phase, backlogSlots)
	}
	q, ok := c.(puller)
	if !ok {
		return nil, fmt.Errorf("this contender has no phase %q", phase)
	}
	switch phase {
	case phaseRefill:
		if err := q.empty(ctx); err != nil {
			return nil, err
		}
		_, err := inserted(ctx, c, n, 4, insertBatch, false)
		return nil, err
	case phaseClaim1:
		return claimed(ctx, q, phase, n, 16, 1)
	case phaseClaim100:
		return claimed(ctx, q, phase, n, 4, 100)
	case phaseClaim500:
		return claimed(ctx, q, phase, n, 2, 500)
	}
	return nil, fmt.Errorf("there is no phase %q", phase)
}

// inserted puts n jobs in, batch a call, from conns connections, and returns how
// many that were per second.
func inserted(ctx context.Context, c contender, n, conns, batch int, low bool) (float64, error) {
	began := time.Now()
	var next atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for range conns {
		g.Go(func() error {
			for {
				from := int(next.Add(int64(batch))) - batch
				if from >= n {
					return nil
				}
				if err := put(ctx, c, from, min(n, from+batch), low); err != nil {
					return err
				}
			}
		})
	}
	err := g.Wait()
	return float64(n) / time.Since(began).Seconds(), err
}

func put(ctx context.Context, c contender, from, to int, low bool) error {
	if to-from == 1 {
		return c.insert(ctx, job{Number: from})
	}
	list := make([]job, 0, to-from)
	for i := from; i < to; i++ {
		j := job{Number: i}
		if low {
			// Jobs that start together must not end together, or slots would be
			// free in waves.
			j.Low, j.Millis = true, 50+i*7919%100
		}
		list = append(list, j)
	}
	return c.insertMany(ctx, list)
}

func claimed(ctx context.Context, q puller, name string, n, conns, batch int) (values, error) {
	began := time.Now()
	took, err := drain(ctx, q, conns, batch, false)
	if err != nil {
		return nil, err
	}
	if took != n {
		return nil, fmt.Errorf("%d jobs were claimed, there were %d", took, n)
	}
	return values{name: float64(n) / time.Since(began).Seconds()}, nil
}

// worked measures n jobs from the start of the first one to the moment when the
// database knows that none is left. For a puller the first claim counts too.
func worked(ctx context.Context, c contender, n int) (values, error) {
	began := time.Now()
	if q, ok := c.(puller); ok {
		took, err := drain(ctx, q, 4, claimLimit, true)
		if err == nil && took != n {
			err = fmt.Errorf("%d jobs were worked, there were %d", took, n)
		}
		return values{phaseWorked: float64(n) / time.Since(began).Seconds()}, err
	}
	var count atomic.Int64
	first, last := make(chan time.Time, 1), make(chan struct{})
	stop := background(ctx, c, riverWorkers, func(job) {
		switch count.Add(1) {
		case 1:
			first <- time.Now()
		case int64(n):
			close(last)
		}
	})
	if err := stop.await(last); err != nil {
		return nil, err
	}
	for {
		left, err := c.unfinished(ctx)
		if err != nil {
			return nil, err
		}
		if !left {
			break
		}
		time.Sleep(2 * time.Millisecond)
	}
	took := time.Since(<-first)
	if err := stop.end(); err != nil {
		return nil, err
	}
	if count.Load() != int64(n) {
		return nil, fmt.Errorf("%d jobs were worked, there were %d", count.Load(), n)
	}
	return values{phaseWorked: float64(n) / took.Seconds()}, nil
}

// quantile returns the value below which the given part of times lies.
func quantile(times []float64, part float64) float64 {
	sorted := slices.Sorted(slices.Values(times))
	return sorted[min(len(sorted)-1, int(part*float64(len(sorted))))]
}
