package main

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"
)

// most is how many messages or rows one step takes at a time.
const most = 256

// A pipeline is what a spawn without a process cannot do without: a row at the hub, a
// signature, a message, a check and a row at the spoke, a claim, a start, and the same
// way back. It has no inbox, no outbox, no audit and no row-level security, and it loses
// work in a crash. Every step takes what is waiting in one transaction.
type pipeline struct {
	hub, spoke       *database
	bus              *bus
	hubKey, spokeKey ed25519.PrivateKey
	result           bool // the end is reported as well, as a message of its own

	orders  chan *order
	stored  chan *order
	work    chan struct{}
	claimed chan []uuid.UUID
	started chan []uuid.UUID

	mu      sync.Mutex // guards waiting
	waiting map[uuid.UUID]*order
}

// An order is one spawn.
type order struct {
	id    uuid.UUID
	at    time.Time
	start time.Duration // from at until the hub knew
	ended chan struct{}
}

func newPipeline(hub, spoke *database, b *bus, result bool) (*pipeline, error) {
	p := &pipeline{hub: hub, spoke: spoke, bus: b, result: result, orders: make(chan *order, most), stored: make(chan *order, most), work: make(chan struct{}, 1),
		claimed: make(chan []uuid.UUID, 1), started: make(chan []uuid.UUID, 1), waiting: map[uuid.UUID]*order{}}
	var errs [2]error
	_, p.hubKey, errs[0] = ed25519.GenerateKey(rand.Reader)
	_, p.spokeKey, errs[1] = ed25519.GenerateKey(rand.Reader)
	return p, errors.Join(errs[:]...)
}

// spawn orders one and waits until the hub knows its last report.
func (p *pipeline) spawn(ctx context.Context) (*order, error) {
	o := &order{id: uuid.Must(uuid.NewV7()), at: time.Now(), ended: make(chan struct{})}
	p.mu.Lock()
	p.waiting[o.id] = o
	p.mu.Unlock()
	select {
	case p.orders <- o:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	select {
	case <-o.ended:
		return o, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(time.Minute):
		return nil, fmt.Errorf("spawn %s has not ended", o.id)
	}
}

// run does all steps until ctx ends.
func (p *pipeline) run(ctx context.Context) error {
	orders, err := p.bus.listen(ctx, p.bus.spoke, "orders")
	if err != nil {
		return err
	}
	reports, err := p.bus.listen(ctx, p.bus.hub, "reports")
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	each(g, ctx, p.orders, p.store)
	each(g, ctx, p.stored, p.send)
	each(g, ctx, orders, p.takeIn)
	each(g, ctx, p.work, p.claim)
	each(g, ctx, p.claimed, p.start)
	each(g, ctx, p.started, p.end)
	each(g, ctx, reports, p.project)
	if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// each has do take what waits in c, up to most, again and again.
func each[T any](g *errgroup.Group, ctx context.Context, c <-chan T, do func(context.Context, []T) error) {
	g.Go(func() error {
		for {
			var batch []T
			select {
			case <-ctx.Done():
				return nil
			case first := <-c:
				batch = append(batch, first)
			}
			for more := true; more && len(batch) < most; {
				select {
				case next := <-c:
					batch = append(batch, next)
				default:
					more = false
				}
			}
			if err := do(ctx, batch); err != nil {
				return err
			}
		}
	})
}
