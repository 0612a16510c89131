package backlog

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/spawnmesh/spawnmesh/commands"
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

// A leftWork is what the attempts of a task have left until now.
type leftWork struct {
	Bundle *commands.Bundle `json:"bundle,omitempty"`
	Kept   string           `json:"kept,omitempty"`
}

// leftBefore adds to the ends of tasks what attempts before have left, where the last one has not been asked, or there was none.
func leftBefore(ctx context.Context, tx *store.Tx, list []Moved) error {
	at := map[string]int{}
	for i, m := range list {
		if m.Conn != "" && m.told == nil && (m.End == nil && m.Attempt > 0 && m.State.Terminal() || m.End != nil && m.Attempt > 1 && !m.End.Collected) {
			at[m.Task] = i
		}
	}
	if len(at) == 0 {
		return nil
	}
	rows, err := tx.Query(ctx, statement("left_before"), slices.Collect(maps.Keys(at)))
	if err != nil {
		return fmt.Errorf("reading what attempts have left: %w", err)
	}
	var task string
	var work leftWork
	_, err = pgx.ForEachRow(rows, []any{&task, &work}, func() error {
		list[at[task]].before, work = work, leftWork{}
		return nil
	})
	return err
}

// work is what the end of a task tells of what it has left.
func (m Moved) work() leftWork {
	if m.End == nil {
		return m.before
	}
	w := leftWork{m.End.Bundle, m.End.Kept}
	if w.Bundle == nil {
		w.Bundle = m.before.Bundle
	}
	if m.before.Kept != "" {
		w.Kept = commands.CleanLine(strings.TrimPrefix(w.Kept+"; "+m.before.Kept, "; "), commands.MaxKept)
	}
	return w
}

// holdLeft queues that what attempts have left is held here, and of those that are over for good that it is to be brought to their hubs.
func holdLeft(tx *store.Tx, list []Moved) {
	var held, over, open leftRows
	var works []*leftWork
	for _, m := range list {
		if m.Conn == "" || m.told != nil || m.Before {
			continue
		}
		w := m.work()
		if w.Bundle != nil {
			held.add(m, w.Bundle)
		}
		if w.Bundle != nil && (m.State.Terminal() || m.delivers()) {
			over.add(m, w.Bundle)
		}
		if !m.State.Terminal() && m.End != nil && (m.End.Collected || w != leftWork{}) {
			open.add(m, cmp.Or(w.Bundle, &commands.Bundle{}))
			work := &w
			if w == (leftWork{}) {
				work = nil
			}
			works = append(works, work)
		}
	}
	if len(held.tasks) > 0 {
		tx.Queue(statement("hold_left"), held.digests, held.conns, held.sizes)
	}
	if len(over.tasks) > 0 {
		tx.Queue(statement("note_left"), over.tasks, over.conns, over.digests, over.sizes)
	}
	if len(open.tasks) > 0 {
		tx.Queue(statement("keep_left"), open.tasks, open.conns, open.digests, open.sizes, works)
	}
}

// leftRows are what attempts have left, in columns.
type leftRows struct {
	tasks, conns, digests []string
	sizes                 []int64
}

func (r *leftRows) add(m Moved, b *commands.Bundle) {
	r.tasks, r.conns, r.digests, r.sizes = append(r.tasks, m.Task), append(r.conns, m.Conn), append(r.digests, b.Digest), append(r.sizes, b.Size)
}
