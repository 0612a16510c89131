package main

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"
)

// The steps of the pipeline, in the order in which a spawn goes through them.

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
