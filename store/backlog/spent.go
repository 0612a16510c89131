package backlog

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// rollBudgets begins windows anew whose time has come, forgets charges that
// have left a rolling window, notes soft limits that were passed, and does what
// spent budgets say is to be done with the tasks that wait for them. Each has a
// transaction of its own: tasks are held before budgets, and the shards of budgets
// in one order.
func (b *Backlog) rollBudgets(ctx context.Context) (n int64, err error) {
	for _, sql := range []string{statement("roll_charges"), statement("begin_windows")} {
		rolled := int64(0)
		err := b.db.Tx(ctx, "rolling budget windows", func(ctx context.Context, tx *store.Tx) error {
			tag, err := tx.Exec(ctx, sql)
			if rolled = tag.RowsAffected(); err != nil || rolled == 0 {
				return err
			}
			return tellClaimers(ctx, tx)
		})
		n += rolled
		if err != nil {
			return n, err
		}
	}
	err = b.db.Tx(ctx, "noting soft limits", func(ctx context.Context, tx *store.Tx) error {
		_, err := tx.Exec(ctx, statement("note_soft_limits"))
		return err
	})
	if err != nil {
		return n, err
	}
	moved := int64(0)
	err = b.db.Tx(ctx, "acting on spent budgets", func(ctx context.Context, tx *store.Tx) (err error) {
		moved, err = b.actOnSpent(ctx, tx)
		return err
	})
	return n + moved, err
}

// actOnSpent cancels or moves the claimable tasks of classes whose budget is
// spent and says so. (queue and refuse leave them where they are.)
func (b *Backlog) actOnSpent(ctx context.Context, tx *store.Tx) (int64, error) {
	rows, err := tx.Query(ctx, statement("tasks_of_spent_budgets"), sweepBatch)
	if err != nil {
		return 0, fmt.Errorf("looking for tasks of spent budgets: %w", err)
	}
	cancel, lanes := []string{}, map[string][]string{}
	var task, how, lane string
	_, err = pgx.ForEachRow(rows, []any{&task, &how, &lane}, func() error {
		if how == "cancel" {
			cancel = append(cancel, task)
		} else {
			lanes[lane] = append(lanes[lane], task)
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	if err := hold(ctx, tx, slices.Concat(slices.Concat(slices.Collect(maps.Values(lanes))...), cancel)); err != nil {
		return 0, err
	}
	n := int64(0)
	for lane, tasks := range lanes {
		moved, err := changeLane(ctx, tx, tasks, lane)
		if err != nil {
			return n, err
		}
		n += moved
	}
	if len(cancel) == 0 {
		return n, nil
	}
	done, err := b.cancelWaiting(ctx, tx, "self", cancel, commands.BudgetExceeded)
	if err != nil {
		return n, err
	}
	return n + int64(len(done)), b.failDependents(ctx, tx, done)
}

// changeLane moves those of tasks that stand ready to another lane.
func changeLane(ctx context.Context, tx *store.Tx, tasks []string, lane string) (int64, error) {
	tasks, err := pullFrom(ctx, tx, tasks, statement("pull_ready"))
	if err != nil {
		return 0, err
	}
	tag, err := tx.Exec(ctx, statement("change_lane"), tasks, lane)
	if err != nil {
		return 0, fmt.Errorf("moving tasks to lane %s: %w", lane, err)
	}
	return tag.RowsAffected(), place(ctx, tx, tasks)
}
