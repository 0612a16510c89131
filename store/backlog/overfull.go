package backlog

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// overfull refuses those requests, by their places in the list, whose inputs would be more than is held of their connection. Inputs of
// tasks that are known here count, also those that have not come: so nobody fills a disk by many orders at once.
func (b *Backlog) overfull(ctx context.Context, tx *store.Tx, list []Request) (map[int]*commands.Refused, error) {
	if b.InputsMost == nil {
		return nil, nil
	}
	most := b.InputsMost()
	var conns, tasks, digests []string
	for _, r := range list {
		if len(r.Spawn.Inputs) > 0 {
			conns, tasks = append(conns, r.Conn), append(tasks, r.Spawn.Task)
			for _, blob := range r.Spawn.Blobs() {
				digests = append(digests, blob.Digest)
			}
		}
	}
	if most == 0 || len(conns) == 0 {
		return nil, nil
	}
	if err := holdInputs(ctx, tx, conns); err != nil {
		return nil, err
	}
	h := inputsHeld{sizes: map[string]int64{}, known: map[heldInput]bool{}, tasks: map[string]bool{}}
	if err := h.read(ctx, tx, conns, tasks, digests); err != nil {
		return nil, fmt.Errorf("counting the inputs of connections: %w", err)
	}
	refused := map[int]*commands.Refused{}
	for i, r := range list {
		if len(r.Spawn.Inputs) > 0 && !h.tasks[r.Spawn.Task] {
			refused[i] = h.add(r, most)
		}
		if refused[i] == nil {
			delete(refused, i)
		}
	}
	return refused, nil
}

// inputsHeld is what is known of the inputs of connections.
type inputsHeld struct {
	sizes map[string]int64 // by connection
	known map[heldInput]bool
	tasks map[string]bool // that are here already: nothing more comes of them
}

// A heldInput counts once. Its size is what its orders say, which need not be the same.
type heldInput struct {
	conn, digest string
	size         int64
}

func (h *inputsHeld) read(ctx context.Context, tx *store.Tx, conns, tasks, digests []string) error {
	var conn, name string
	var size int64
	rows, err := tx.Query(ctx, statement("held_inputs"), conns)
	if err == nil {
		_, err = pgx.ForEachRow(rows, []any{&conn, &size}, func() error { h.sizes[conn] = size; return nil })
	}
	if err != nil {
		return err
	}
	if rows, err = tx.Query(ctx, statement("known_inputs"), conns, digests); err == nil {
		_, err = pgx.ForEachRow(rows, []any{&conn, &name, &size}, func() error { h.known[heldInput{conn, name, size}] = true; return nil })
	}
	if err != nil {
		return err
	}
	here, err := collect[string](tx.Query(ctx, `SELECT id::text FROM tasks WHERE id = ANY ($1::uuid[])`, tasks))
	for _, task := range here {
		h.tasks[task] = true
	}
	return err
}

// add counts the inputs of a request, or says why they are too many.
func (h *inputsHeld) add(r Request, most int64) *commands.Refused {
	var more int64
	for _, blob := range r.Spawn.Blobs() {
		if !h.known[heldInput{r.Conn, blob.Digest, blob.Size}] {
			more += blob.Size
		}
	}
	if h.sizes[r.Conn]+more > most {
		return commands.Refuse(commands.InputTooLarge, "the inputs of this hub's orders take %s on this spoke, and with %s more they are above its limit", commands.SizeText(h.sizes[r.Conn]), commands.SizeText(more)).
			Hinting("they are forgotten with their agents; its host can take more with limits.held_inputs in policy.yaml")
	}
	h.sizes[r.Conn] += more
	for _, blob := range r.Spawn.Blobs() {
		h.known[heldInput{r.Conn, blob.Digest, blob.Size}] = true
	}
	return nil
}
