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

// pull takes waiting tasks out of their places and locks their rows. Claimers
// lock ready before tasks, so ready comes first; a due task may have become
// ready meanwhile, so it comes again at the end.
func pull(ctx context.Context, tx *store.Tx, tasks []string) error {
	const fromReady = `DELETE FROM ready USING tasks t WHERE t.id = ANY ($1::uuid[]) AND ready.class = t.class AND ready.rank = -t.priority AND ready.seq = t.seq`
	var batch pgx.Batch
	batch.Queue(fromReady, tasks)
	batch.Queue(`SELECT count(*) FROM (SELECT FROM tasks WHERE id = ANY ($1::uuid[]) ORDER BY id FOR UPDATE) AS t`, tasks)
	batch.Queue(`WITH d AS (DELETE FROM due WHERE task = ANY ($1::uuid[])) DELETE FROM parked WHERE task = ANY ($1::uuid[])`, tasks)
	batch.Queue(fromReady, tasks)
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return fmt.Errorf("taking tasks out of the queue: %w", err)
	}
	return nil
}

// park puts tasks aside until somebody decides.
func park(ctx context.Context, tx *store.Tx, tasks []string, why string) error {
	if len(tasks) == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, `INSERT INTO parked (task, workspace, why) SELECT id, workspace, $2 FROM tasks WHERE id = ANY ($1::uuid[])`, tasks, why)
	if err != nil {
		return fmt.Errorf("parking tasks: %w", err)
	}
	return nil
}

// resolve lets the dependents of tasks that have ended go on: all of completed
// ones, and of failed ones those that do not mind. It queues the first of two
// statements and returns the second, to be run when the batch was sent. That one
// has a snapshot from after the dependents' rows were locked: somebody who puts
// one of them back at this moment is either seen there, or waits and then sees
// that nothing is unmet.
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

// resolveNow is resolve on its own.
func resolveNow(ctx context.Context, tx *store.Tx, ended []string) error {
	var batch pgx.Batch
	free := resolve(&batch, uuids(ended))
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return fmt.Errorf("letting dependents go on: %w", err)
	}
	return free(ctx, tx)
}
