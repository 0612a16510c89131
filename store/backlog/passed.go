package backlog

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// A database that was restored from a backup may have an attempt as open after which another one has begun since. It has ended, and
// decides nothing: a word about its task is one about the later attempt, which may run.

// A passedAttempt is such an attempt, and what was asked of it.
type passedAttempt struct {
	fence  Fence
	reason string
}

// passed returns the attempts that hold some of tasks and that later ones have passed, each once. Their leases are held until the commit.
func (b *Backlog) passed(ctx context.Context, tx *store.Tx, tasks []string) ([]passedAttempt, error) {
	if !b.Restored() || len(tasks) == 0 {
		return nil, nil
	}
	tasks = slices.Compact(slices.Sorted(slices.Values(tasks)))
	rows, err := tx.Query(ctx, statement("passed"), tasks, b.begun.found(tasks))
	if err != nil {
		return nil, fmt.Errorf("looking for attempts that later ones have passed: %w", err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (p passedAttempt, err error) {
		return p, row.Scan(&p.fence.Task, &p.fence.Attempt, &p.fence.Epoch, &p.reason)
	})
	if err != nil {
		return nil, fmt.Errorf("looking for attempts that later ones have passed: %w", err)
	}
	return list, nil
}

// takeBegun opens the last attempts of those of tasks that have begun one before a restore that is not known here, and returns these tasks:
// an attempt that is open and passed is closed. The caller holds all of them.
func (b *Backlog) takeBegun(ctx context.Context, tx *store.Tx, tasks []string) ([]string, error) {
	passed, err := b.passed(ctx, tx, tasks)
	if err != nil {
		return nil, err
	}
	var closed []string
	var list []closing
	for _, p := range passed {
		closed = append(closed, p.fence.Task)
		list = append(list, closing{fence: p.fence, outcome: string(commands.Interrupted), exit: commands.Exit{Code: -1, Error: passedBefore}})
	}
	if _, err := b.closeAttempts(ctx, tx, "self", list); err != nil {
		return nil, err
	}
	opened, err := b.openBegun(ctx, tx, without(tasks, closed))
	return append(closed, opened...), err
}

// passedBefore is how an attempt ended that is closed for a later one.
const passedBefore = "it ran when the backup was taken that this database was restored from, and a later attempt has begun since"

// markPassed marks those of the list that end attempts that were passed, and returns these as they were. What has succeeded has ended its task
// all the same: an agent that is not kept from it may make directories.
func (b *Backlog) markPassed(ctx context.Context, tx *store.Tx, list []closing) ([]passedAttempt, error) {
	passed, err := b.passed(ctx, tx, fencesOf(list, func(c closing) Fence { return c.fence }).task)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(passed, func(p passedAttempt) bool {
		named := false
		for i, c := range list { // a list may name an attempt twice, and either one ends it
			if c.fence == p.fence && c.outcome != string(commands.Succeeded) {
				list[i].passed, named = true, true
			}
		}
		return !named
	}), nil
}

// passOn lets what was asked of attempts that were passed be asked of those that have begun after them.
func passOn(ctx context.Context, tx *store.Tx, list []passedAttempt) error {
	var tasks, reasons []string
	for _, p := range list {
		if p.reason != "" {
			tasks, reasons = append(tasks, p.fence.Task), append(reasons, p.reason)
		}
	}
	if len(tasks) == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, `UPDATE leases l SET reason = u.reason FROM unnest($1::uuid[], $2::text[]) AS u (task, reason) WHERE l.task = u.task`, tasks, reasons)
	if err != nil {
		return fmt.Errorf("passing on what was asked of attempts: %w", err)
	}
	return nil
}
