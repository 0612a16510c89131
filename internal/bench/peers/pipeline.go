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
	"github.com/nats-io/nats.go/jetstream"
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

func (p *pipeline) store(ctx context.Context, batch []*order) error {
	ids := make([]uuid.UUID, len(batch))
	for i, o := range batch {
		ids[i] = o.id
	}
	err := p.hub.exec(ctx, `INSERT INTO orders (id, body) SELECT id, $2 FROM unnest($1::uuid[]) AS id`, ids, body)
	for _, o := range batch {
		p.stored <- o
	}
	return err
}

func (p *pipeline) send(ctx context.Context, batch []*order) error {
	list := make([][]byte, len(batch))
	for i, o := range batch {
		list[i] = seal(p.hubKey, message{ID: o.id, Kind: "spawn", Body: body})
	}
	return p.bus.publish(ctx, p.bus.hubJS, "orders", list)
}

func (p *pipeline) takeIn(ctx context.Context, batch []jetstream.Msg) error {
	list, err := open(p.hubKey, batch)
	if err != nil {
		return err
	}
	ids := make([]uuid.UUID, len(list))
	for i, m := range list {
		ids[i] = m.ID
	}
	if err := p.spoke.exec(ctx, `INSERT INTO tasks (id, body) SELECT id, $2 FROM unnest($1::uuid[]) AS id ON CONFLICT DO NOTHING`, ids, body); err != nil {
		return err
	}
	wake(p.work)
	return batch[len(batch)-1].Ack() // and of all before it
}

func (p *pipeline) claim(ctx context.Context, _ []struct{}) error {
	ids, err := p.spoke.ids(ctx, `UPDATE tasks SET state = 'claimed' WHERE id = ANY (ARRAY (SELECT id FROM tasks WHERE state = 'queued' ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED)) RETURNING id`, most)
	if err != nil || len(ids) == 0 {
		return err
	}
	if len(ids) == most {
		wake(p.work)
	}
	p.claimed <- ids
	return nil
}

func (p *pipeline) start(ctx context.Context, batches [][]uuid.UUID) error {
	return p.report(ctx, "started", batches, p.started)
}

func (p *pipeline) end(ctx context.Context, batches [][]uuid.UUID) error {
	if !p.result {
		return nil
	}
	return p.report(ctx, "ended", batches, nil)
}

// report moves tasks to a state and says so, in one signed message each.
func (p *pipeline) report(ctx context.Context, state string, batches [][]uuid.UUID, then chan<- []uuid.UUID) error {
	for _, ids := range batches {
		if err := p.spoke.exec(ctx, `UPDATE tasks SET state = $2, at = now() WHERE id = ANY ($1)`, ids, state); err != nil {
			return err
		}
		list := make([][]byte, len(ids))
		for i, id := range ids {
			list[i] = seal(p.spokeKey, message{ID: id, Kind: state})
		}
		if err := p.bus.publish(ctx, p.bus.spokeJS, "reports", list); err != nil {
			return err
		}
		if then != nil {
			then <- ids
		}
	}
	return nil
}

// project writes what was reported to the hub's rows, and wakes who waits.
func (p *pipeline) project(ctx context.Context, batch []jetstream.Msg) error {
	list, err := open(p.spokeKey, batch)
	if err != nil {
		return err
	}
	by := map[string][]uuid.UUID{}
	for _, m := range list {
		by[m.Kind] = append(by[m.Kind], m.ID)
	}
	for _, kind := range []string{"started", "ended"} {
		if len(by[kind]) == 0 {
			continue
		}
		if err := p.hub.exec(ctx, `UPDATE orders SET state = $2, at = now() WHERE id = ANY ($1)`, by[kind], kind); err != nil {
			return err
		}
		p.told(kind, by[kind])
	}
	return batch[len(batch)-1].Ack()
}

func (p *pipeline) told(kind string, ids []uuid.UUID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range ids {
		o := p.waiting[id]
		if kind == "started" {
			o.start = time.Since(o.at)
		}
		if kind == "ended" || !p.result {
			delete(p.waiting, id)
			close(o.ended)
		}
	}
}

func wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
