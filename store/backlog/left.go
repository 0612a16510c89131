package backlog

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/spawnmesh/spawnmesh/store"
)

// offerAgain is how long a hub is left alone with what it has not taken.
const offerAgain = time.Hour

// Due returns what tasks have left that is to be brought to the hubs of some connections, up to limit of each, those of the oldest tasks first.
func (b *Backlog) Due(ctx context.Context, conns []string, limit int) ([]Wanted, error) {
	return b.toCarry(ctx, "looking for what is to be brought", statement("left_due"), conns, limit)
}

// Brought notes that the hub of a connection holds what tasks have left, or that it does not take it: that is due again after an hour. It returns
// whose that is; a second time nobody's.
func (b *Backlog) Brought(ctx context.Context, w Wanted, held bool) (tasks []string, err error) {
	how := "refused"
	if held {
		how = "held"
	}
	err = b.db.Tx(ctx, "noting what was brought", func(ctx context.Context, tx *store.Tx) error {
		tasks, err = collect[string](tx.Query(ctx, statement("left_brought"), w.Conn, w.Digest, w.Size, how, offerAgain))
		return err
	})
	return tasks, err
}

// OfferAgain has what the hub of a connection held offered to it once more where it names that otherwise than before: it may have lost some.
func (b *Backlog) OfferAgain(ctx context.Context, conn, name string) error {
	return b.db.Tx(ctx, "offering a hub once more what it held", func(ctx context.Context, tx *store.Tx) error {
		_, err := tx.Exec(ctx, statement("left_again"), conn, name)
		return err
	})
}

// Held returns those of the tasks of which their hubs hold what they have left.
func (b *Backlog) Held(ctx context.Context, tasks []string) ([]string, error) {
	return b.these(ctx, "looking for what hubs hold", statement("left_held"), tasks)
}

// Open returns those of the tasks that are not over.
func (b *Backlog) Open(ctx context.Context, tasks []string) ([]string, error) {
	return b.these(ctx, "looking for tasks that are not over", statement("not_over"), tasks)
}

func (b *Backlog) these(ctx context.Context, what, query string, tasks []string) (list []string, err error) {
	if len(tasks) == 0 {
		return nil, nil
	}
	err = b.db.Read(ctx, what, func(ctx context.Context, c *pgxpool.Conn) error {
		list, err = collect[string](c.Query(ctx, query, tasks))
		return err
	})
	return list, err
}

// holdLeft queues that what attempts have left is held here, and of those that are over for good that it is to be brought to their hubs.
func holdLeft(tx *store.Tx, list []Moved) {
	var conns, digests, tasks, over, due []string
	var sizes, dueSizes []int64
	for _, m := range list {
		if m.Conn == "" || m.End == nil || m.End.Bundle == nil {
			continue
		}
		b := m.End.Bundle
		conns, digests, sizes = append(conns, m.Conn), append(digests, b.Digest), append(sizes, b.Size)
		if m.State.Terminal() || m.delivers() {
			tasks, over, due, dueSizes = append(tasks, m.Task), append(over, m.Conn), append(due, b.Digest), append(dueSizes, b.Size)
		}
	}
	if len(conns) > 0 {
		tx.Queue(statement("hold_left"), digests, conns, sizes)
	}
	if len(tasks) > 0 {
		tx.Queue(statement("note_left"), tasks, over, due, dueSizes)
	}
}
