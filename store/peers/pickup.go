package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// A worker is a contender that works in the background.
type worker struct {
	cancel context.CancelFunc
	done   chan struct{}
	err    error // set before done is closed
}

// background starts work on c. The goroutine ends with end.
func background(ctx context.Context, c contender, slots int, do func(job)) *worker {
	ctx, cancel := context.WithCancel(ctx)
	w := &worker{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.err = c.work(ctx, slots, do)
	}()
	return w
}

var errStopped = errors.New("the worker stopped before its jobs were done")

// await returns when something has happened, or the worker has stopped before it.
func (w *worker) await(something <-chan struct{}) error {
	select {
	case <-something:
		return nil
	case <-w.done:
		return errors.Join(errStopped, w.err)
	}
}

// end stops the worker and waits for its jobs.
func (w *worker) end() error {
	w.cancel()
	<-w.done
	return w.err
}

// pickup inserts jobs at a steady rate, whatever becomes of the ones before, and
// measures how long each takes from before its insert to its start.
func pickup(ctx context.Context, c contender, name string, slots int) (values, error) {
	count := int(pickupTime.Seconds() * pickupRate)
	t := &pickupTimes{began: make([]time.Time, count), ms: make([]float64, 0, count),
		warm: make(chan struct{}), all: make(chan struct{})}
	w := background(ctx, c, slots, t.started)
	if err := warm(ctx, c, t); err != nil {
		return nil, errors.Join(err, w.end())
	}
	var g errgroup.Group
	tick := time.NewTicker(time.Second / pickupRate)
	defer tick.Stop()
	for i := range count {
		<-tick.C
		t.asked(i)
		g.Go(func() error { return c.insert(ctx, job{Number: firstPickup + i}) })
	}
	if err := g.Wait(); err != nil {
		return nil, errors.Join(err, w.end())
	}
	limit, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	stop := context.AfterFunc(limit, w.cancel)
	defer stop()
	if err := w.await(t.all); err != nil {
		return nil, err
	}
	if err := w.end(); err != nil {
		return nil, err
	}
	return values{name + "-p50": quantile(t.ms, 0.50), name + "-p99": quantile(t.ms, 0.99)}, nil
}

// Numbers above every other job's.
const (
	firstPickup = 100_000_000
	firstWarm   = 200_000_000
)

// warm waits until the worker runs and, beside a backlog, until its slots are taken.
func warm(ctx context.Context, c contender, t *pickupTimes) error {
	if err := c.insert(ctx, job{Number: firstWarm}); err != nil {
		return err
	}
	select {
	case <-t.warm:
	case <-time.After(30 * time.Second):
		return fmt.Errorf("no job was started within 30 s")
	}
	time.Sleep(time.Second)
	return nil
}

// A pickupTimes holds the times of one pickup measurement.
type pickupTimes struct {
	warm chan struct{} // closed when the first job has started
	all  chan struct{} // closed when every measured one has

	mu    sync.Mutex
	began []time.Time
	ms    []float64
}

func (t *pickupTimes) asked(i int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.began[i] = time.Now()
}

func (t *pickupTimes) started(j job) {
	now := time.Now()
	switch {
	case j.Number >= firstWarm:
		close(t.warm)
	case j.Number >= firstPickup:
		t.mu.Lock()
		t.ms = append(t.ms, float64(now.Sub(t.began[j.Number-firstPickup]))/float64(time.Millisecond))
		if len(t.ms) == len(t.began) {
			close(t.all)
		}
		t.mu.Unlock()
	default:
		j.do()
	}
}
