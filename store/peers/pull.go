package main

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// poll is how often a worker looks for jobs that no notification told it of.
const poll = 20 * time.Millisecond

// pull works a queue with a number of slots: as many jobs are claimed as slots
// are free, each runs in a goroutine, and whatever is done by the time the last
// completion has returned is completed together.
func pull(ctx context.Context, q puller, slots int, do func(job)) error {
	free := make(chan struct{}, slots)
	for range slots {
		free <- struct{}{}
	}
	done := make(chan held, slots)
	var g errgroup.Group
	g.Go(func() error { return finish(context.WithoutCancel(ctx), q, done) })

	var running sync.WaitGroup
	err := dispatchJobs(ctx, q, free, func(h held) {
		running.Go(func() {
			do(h.job)
			done <- h
			free <- struct{}{}
		})
	})
	running.Wait()
	close(done)
	if e := g.Wait(); err == nil {
		err = e
	}
	return err
}

// dispatchJobs claims for free slots until ctx ends. It waits for a notification or the
// poll when the queue had fewer jobs than there were slots.
func dispatchJobs(ctx context.Context, q puller, free chan struct{}, start func(held)) error {
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-free:
		}
		n := 1
		for len(free) > 0 && n < claimLimit {
			<-free
			n++
		}
		// A claim that has begun is carried through: its jobs are ours.
		list, err := q.claim(context.WithoutCancel(ctx), n)
		if err != nil {
			return err
		}
		for _, h := range list {
			start(h)
		}
		for range n - len(list) {
			free <- struct{}{}
		}
		if len(list) == n {
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-q.notified():
		case <-tick.C:
		}
	}
}

// claimLimit is the most jobs that one claim takes.
const claimLimit = 500

// finish completes jobs until done is closed, all that wait at a time.
func finish(ctx context.Context, q puller, done <-chan held) error {
	for h := range done {
		batch := []held{h}
		for len(done) > 0 && len(batch) < claimLimit {
			h, open := <-done
			if !open {
				break
			}
			batch = append(batch, h)
		}
		if err := q.complete(ctx, batch); err != nil {
			for range done { // nobody waits for a place in it for ever
			}
			return err
		}
	}
	return nil
}

// drain takes all jobs, with each of conns taking up to batch at a time, and
// returns how many it took. With finished, it also completes them.
func drain(ctx context.Context, q puller, conns, batch int, finished bool) (int, error) {
	g, ctx := errgroup.WithContext(ctx)
	counts := make([]int, conns)
	for i := range conns {
		g.Go(func() error {
			for {
				list, err := q.claim(ctx, batch)
				if err != nil || len(list) == 0 {
					return err
				}
				counts[i] += len(list)
				if finished {
					if err := q.complete(ctx, list); err != nil {
						return err
					}
				}
			}
		})
	}
	err := g.Wait()
	sum := 0
	for _, n := range counts {
		sum += n
	}
	return sum, err
}
