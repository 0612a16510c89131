package backlog

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// A task whose inputs are not all held has one more in unmet than it has dependencies that are not met, whatever its state is. So it
// waits where those wait that depend on others, and whatever moves it puts it there again.

// A Wanted is a blob that tasks of a connection wait for.
type Wanted struct {
	Conn string
	commands.Blob
}

// An InputHere is an input's blob, and whether it is held.
type InputHere struct {
	commands.Blob
	Held bool
}

// awaitInputs notes what those of the list's requests need that are fresh tasks, and has them wait for what is not held. Whoever notes a
// blob of the same connection as held comes before or after.
func (b *Backlog) awaitInputs(ctx context.Context, tx *store.Tx, list []Request, fresh []string) error {
	var conns, tasks, use, over, digests []string
	var sizes []int64
	for _, r := range list {
		if len(r.Spawn.Inputs) == 0 || !slices.Contains(fresh, r.Spawn.Task) {
			continue
		}
		conns, tasks = append(conns, r.Conn), append(tasks, r.Spawn.Task)
		for _, blob := range r.Spawn.Blobs() {
			use, over, digests, sizes = append(use, r.Spawn.Task), append(over, r.Conn), append(digests, blob.Digest), append(sizes, blob.Size)
		}
	}
	if len(tasks) == 0 {
		return nil
	}
	if err := holdInputs(ctx, tx, conns); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, statement("keep_inputs"), digests, over); err != nil {
		return fmt.Errorf("keeping the inputs of tasks: %w", err)
	}
	if _, err := tx.Exec(ctx, statement("note_inputs"), use, over, digests, sizes); err != nil {
		return fmt.Errorf("noting the inputs of tasks: %w", err)
	}
	waiting, err := collect[string](tx.Query(ctx, statement("await_inputs"), tasks))
	if err != nil || len(waiting) == 0 {
		return err
	}
	had, err := pull(ctx, tx, waiting)
	if err != nil {
		return err
	}
	return place(ctx, tx, had)
}

// holdInputs keeps others from noting what is held of the inputs of connections, until the commit.
func holdInputs(ctx context.Context, tx *store.Tx, conns []string) error {
	_, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('inputs ' || c, 0)) FROM (SELECT DISTINCT c FROM unnest($1::text[]) AS c ORDER BY c) AS conns`, conns)
	if err != nil {
		return fmt.Errorf("holding the inputs of connections: %w", err)
	}
	return nil
}

// Wanted returns which blobs are to be fetched over each of some connections, for up to limit of its tasks, the oldest first. Tasks that are
// paused want none.
func (b *Backlog) Wanted(ctx context.Context, conns []string, limit int) ([]Wanted, error) {
	return b.toCarry(ctx, "looking for inputs to fetch", statement("wanted_inputs"), conns, limit)
}

func (b *Backlog) toCarry(ctx context.Context, what, query string, conns []string, limit int) (list []Wanted, err error) {
	if len(conns) == 0 {
		return nil, nil
	}
	err = b.db.Read(ctx, what, func(ctx context.Context, c *pgxpool.Conn) error {
		rows, err := c.Query(ctx, query, conns, limit)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (w Wanted, err error) {
			return w, row.Scan(&w.Conn, &w.Digest, &w.Size)
		})
		return err
	})
	return list, err
}

// InputCame notes that a blob of a connection is held here, and lets its tasks go on that wait for no other one. A second time it does nothing.
func (b *Backlog) InputCame(ctx context.Context, w Wanted) error {
	return b.db.Tx(ctx, "noting an input that is here", func(ctx context.Context, tx *store.Tx) error {
		if err := holdInputs(ctx, tx, []string{w.Conn}); err != nil {
			return err
		}
		tasks, err := collect[string](tx.Query(ctx, statement("tasks_of_input"), w.Conn, w.Digest, w.Size))
		if err != nil {
			return err
		}
		had, err := pullFrom(ctx, tx, tasks, statement("pull_inputs"))
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, statement("input_came"), tasks, w.Conn, w.Digest, w.Size); err != nil {
			return fmt.Errorf("noting input %s: %w", w.Digest, err)
		}
		return place(ctx, tx, had)
	})
}

// InputGone notes that a blob of a connection is not here any more, which was: it is fetched again, and its tasks wait for it before they begin.
// A second time it does nothing.
func (b *Backlog) InputGone(ctx context.Context, w Wanted) error {
	return b.db.Tx(ctx, "noting an input that is gone", func(ctx context.Context, tx *store.Tx) error {
		if err := holdInputs(ctx, tx, []string{w.Conn}); err != nil {
			return err
		}
		tasks, err := collect[string](tx.Query(ctx, statement("tasks_with_input"), w.Conn, w.Digest, w.Size))
		if err != nil || len(tasks) == 0 {
			return err
		}
		had, err := pull(ctx, tx, tasks)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, statement("input_gone"), tasks, had, w.Conn, w.Digest); err != nil {
			return fmt.Errorf("noting that input %s is gone: %w", w.Digest, err)
		}
		return place(ctx, tx, had)
	})
}

// InputLost ends the tasks of a connection that wait for a blob which does not come: its hub does not have it, or it is not what its
// digest says. They are unavailable, and why is for whoever asked for them. It returns which.
func (b *Backlog) InputLost(ctx context.Context, w Wanted, why string) (done []string, err error) {
	why = commands.Clean(why, 1000)
	err = b.db.Tx(ctx, "ending tasks without their inputs", func(ctx context.Context, tx *store.Tx) error {
		tasks, err := collect[string](tx.Query(ctx, statement("waiting_for_input"), w.Conn, w.Digest, w.Size))
		if err == nil {
			tasks, err = pullFrom(ctx, tx, tasks, statement("pull_inputs"))
		}
		if err != nil || len(tasks) == 0 {
			return err
		}
		rows, err := tx.Query(ctx, statement("input_lost"), tasks, string(commands.InputNotThere), why)
		if err != nil {
			return fmt.Errorf("ending tasks without input %s: %w", w.Digest, err)
		}
		if done, err = b.tellEnded(ctx, tx, rows, &End{Exit: commands.Exit{Code: -1, Error: why}}); err != nil {
			return err
		}
		return b.failDependents(ctx, tx, done)
	})
	return done, err
}

// InputsOf returns the blobs that a task needs to begin.
func (b *Backlog) InputsOf(ctx context.Context, task string) (list []InputHere, err error) {
	err = b.db.Read(ctx, "looking up the inputs of task "+task, func(ctx context.Context, c *pgxpool.Conn) error {
		rows, err := c.Query(ctx, statement("inputs_of"), task)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (i InputHere, err error) {
			return i, row.Scan(&i.Digest, &i.Size, &i.Held)
		})
		return err
	})
	return list, err
}
