package backlog

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/spawnmesh/spawnmesh/store"
)

// A task that has not ended stands in exactly one place: ready, due, parked, or
// leases while an attempt holds it. Only the functions of this file and the
// statements of create, claim and close move tasks between places.

// place puts queued tasks that stand nowhere where they belong.
func place(ctx context.Context, tx *store.Tx, tasks []string) error {
	if len(tasks) == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, statement("place"), tasks)
	if err != nil {
		return fmt.Errorf("queueing tasks: %w", err)
	}
	return tellClaimers(ctx, tx)
}

// hold locks the rows of tasks, and with them what belongs to them, until the
// commit. See Locks in docs/architecture.md.
func hold(ctx context.Context, tx *store.Tx, tasks []string) error {
	if len(tasks) == 0 {
		return nil
	}
	if _, err := tx.Exec(ctx, statement("hold"), tasks); err != nil {
		return fmt.Errorf("holding tasks: %w", err)
	}
	return nil
}

// holdLeases locks the leases of tasks until the commit and returns the tasks that have
// one. It comes before hold: who ends, starts or kills an attempt has its lease first.
func holdLeases(ctx context.Context, tx *store.Tx, tasks []string) (held []string, err error) {
	if len(tasks) == 0 {
		return nil, nil
	}
	rows, err := tx.Query(ctx, statement("hold_leases"), tasks)
	if err == nil {
		held, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	if err != nil {
		return nil, fmt.Errorf("holding leases: %w", err)
	}
	return held, nil
}

// holdStanding locks tasks as they stand until the commit: the leases of those that have
// one, the rows, and the places from which claims take them.
func holdStanding(ctx context.Context, tx *store.Tx, tasks []string) error {
	held, err := holdLeases(ctx, tx, tasks)
	if err != nil || len(tasks) == 0 {
		return err
	}
	leased := 0
	var batch pgx.Batch
	batch.Queue(statement("hold"), tasks)
	batch.Queue(`SELECT FROM due WHERE task = ANY ($1::uuid[]) ORDER BY task FOR UPDATE`, tasks) // what was due may have become ready
	batch.Queue(statement("hold_ready"), tasks)
	batch.Queue(`SELECT count(*) FROM leases WHERE task = ANY ($1::uuid[])`, tasks).QueryRow(func(row pgx.Row) error { return row.Scan(&leased) })
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return fmt.Errorf("holding tasks as they stand: %w", err)
	}
	if leased > len(held) {
		return store.ErrRaced // a claim came in between, and its lease is out of turn
	}
	return nil
}

// holdMore holds tasks and their leases for a transaction that holds tasks already: it waits for
// nobody. Where somebody else has one of them it begins anew, [store.ErrRaced].
func holdMore(ctx context.Context, tx *store.Tx, tasks []string) error {
	if len(tasks) == 0 {
		return nil
	}
	taken := 0
	if err := tx.QueryRow(ctx, statement("hold_more"), tasks).Scan(&taken); err != nil {
		return fmt.Errorf("holding more tasks: %w", err)
	}
	if taken > 0 {
		return store.ErrRaced
	}
	return nil
}

// holdWithDependents holds a task and those that wait for it, before anything else.
func holdWithDependents(ctx context.Context, tx *store.Tx, task string) error {
	if _, err := tx.Exec(ctx, statement("hold_with_dependents"), []string{task}); err != nil {
		return fmt.Errorf("holding what waits for a task: %w", err)
	}
	return nil
}

// waitingDependents returns and holds the tasks that wait for tasks.
func waitingDependents(ctx context.Context, tx *store.Tx, tasks []string) ([]string, error) {
	rows, err := tx.Query(ctx, statement("waiting_dependents"), tasks)
	if err != nil {
		return nil, fmt.Errorf("finding dependents: %w", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("finding dependents: %w", err)
	}
	return list, holdMore(ctx, tx, list)
}

// pull holds tasks and takes those that wait out of their places. It returns which
// it has: the others have ended, or an attempt holds them.
func pull(ctx context.Context, tx *store.Tx, tasks []string) (had []string, err error) {
	// What was due may have become ready before: ready comes last.
	return pullFrom(ctx, tx, tasks, statement("pull_waiting"), statement("pull_ready"))
}

// pullFrom is pull for some of the places.
func pullFrom(ctx context.Context, tx *store.Tx, tasks []string, places ...string) (had []string, err error) {
	note := func(rows pgx.Rows) error {
		var task string
		_, err := pgx.ForEachRow(rows, []any{&task}, func() error { had = append(had, task); return nil })
		return err
	}
	var batch pgx.Batch
	batch.Queue(statement("hold"), tasks)
	for _, p := range places {
		batch.Queue(p, tasks).Query(note)
	}
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return nil, fmt.Errorf("taking tasks out of the queue: %w", err)
	}
	return had, nil
}

// pullOne is pull for a task that waits as far as is known; where that is over, the act begins anew.
func pullOne(ctx context.Context, tx *store.Tx, task string) error {
	had, err := pull(ctx, tx, []string{task})
	if err == nil && len(had) == 0 {
		err = errRaced
	}
	return err
}

// park puts tasks aside until somebody decides.
func park(ctx context.Context, tx *store.Tx, tasks []string, why string) error {
	if len(tasks) == 0 {
		return nil
	}
	if _, err := tx.Exec(ctx, statement("park"), tasks, why); err != nil {
		return fmt.Errorf("parking tasks: %w", err)
	}
	return nil
}

// resolve lets the dependents of tasks that have ended go on: all of completed
// ones, and of failed ones those that do not mind. It queues the first of two
// statements and returns the second, to be run when the batch was sent. The first
// waits for nobody: where somebody else has a dependent, the transaction begins
// anew. The second has a snapshot from after the dependents' rows were locked:
// somebody who puts one of them back at this moment is either seen there, or waits
// and then sees that nothing is unmet.
func resolve(batch *pgx.Batch, ended [][16]byte) (free func(context.Context, *store.Tx) error) {
	met := int64(0)
	batch.Queue(statement("resolve"), ended).Exec(func(tag pgconn.CommandTag) error { met = tag.RowsAffected(); return nil })
	return func(ctx context.Context, tx *store.Tx) error {
		if met == 0 {
			return nil
		}
		if _, err := tx.Exec(ctx, statement("free"), ended); err != nil {
			return fmt.Errorf("letting dependents go on: %w", err)
		}
		return nil
	}
}

// resolveNow is resolve at once.
func resolveNow(ctx context.Context, tx *store.Tx, ended []string) error {
	var batch pgx.Batch
	free := resolve(&batch, uuids(ended))
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return fmt.Errorf("letting dependents go on: %w", err)
	}
	return free(ctx, tx)
}
