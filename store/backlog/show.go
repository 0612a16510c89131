package backlog

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

func scanTask(row pgx.CollectableRow) (Task, error) {
	var t Task
	var estimate amounts
	var acceptance, result []byte
	err := row.Scan(&t.ID, &t.Key, &t.Title, &t.Body, &t.Phase, &t.Priority, &t.State, &t.Reason, &t.Kind, &t.Lane, &t.Capabilities, &t.Account,
		&estimate, &t.Unmet, &t.OnFailedDep, &t.Owner, &t.ClaimedAt, &t.LeaseUntil, &t.Attempts, &t.Retries, &t.MaxRetries, &t.BackoffMS, &t.LastError, &t.NotBefore, &acceptance,
		&t.IdempotencyKey, &result, &t.CreatedBy, &t.CreatedAt, &t.UpdatedAt, &t.StartedAt, &t.EndedAt, &t.epoch, &t.asked, &t.DependsOn, &t.ArchivedAt, &t.Eligibility)
	t.ShortID, t.Status, t.Estimate = commands.ShortID(t.ID), BoardStatusOf(t.State), estimate.units()
	t.Acceptance, t.Result = json.RawMessage(acceptance), json.RawMessage(result)
	return t, err
}

// find reads the task that ref names: by its key, by its id, its short id or a part of one,
// see [commands.NamedIDs]. A key comes before an id.
func (ws *Workspace) find(ctx context.Context, tx *store.Tx, ref string) (Task, error) {
	unknown := commands.Refuse(commands.NotFound, "no task %q in workspace %s", commands.Clip(ref), ws.name).Hinting("see").Running("backlog", "list")
	if err := checkText("the task's name", ref, MaxKey, true); err != nil {
		return Task{}, err
	}
	if ref == "" {
		return Task{}, commands.Refuse(commands.Validation, "no task named").Hinting("give its key or id with --id")
	}
	list, err := queryTasks(ctx, tx, statement("task_by_key"), ws.name, "", ref)
	if err == nil && len(list) == 0 {
		if ids, ok := commands.NamedIDs(ref); ok {
			named := statement("task_by_id")
			if ids.Tail {
				named = statement("task_by_short_id")
			}
			list, err = queryTasks(ctx, tx, named, ws.name, "", ids.Low, ids.High)
		}
	}
	list = ws.visible(list)
	switch {
	case err != nil:
		return Task{}, err
	case len(list) > 1:
		var all []string
		for _, t := range list {
			all = append(all, commands.Candidate(t.ID, cmp.Or(t.Key, t.Title), string(t.State)))
		}
		return Task{}, commands.Several(ref, "tasks", all)
	case len(list) == 0:
		return Task{}, unknown
	}
	return list[0], nil
}

// lastID is behind the id of every task.
const lastID = "ffffffff-ffff-ffff-ffff-ffffffffffff"

func queryTasks(ctx context.Context, tx *store.Tx, sql string, args ...any) ([]Task, error) {
	rows, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return nil, fmt.Errorf("reading tasks: %w", err)
	}
	list, err := pgx.CollectRows(rows, scanTask)
	if err != nil {
		return nil, fmt.Errorf("reading tasks: %w", err)
	}
	return list, nil
}

// ShowAll returns the tasks with these ids, in their order. One that is not there
// is left out.
func (ws *Workspace) ShowAll(ctx context.Context, ids []string) (list []Task, err error) {
	if len(ids) == 0 {
		return []Task{}, nil
	}
	err = ws.read(ctx, "reading tasks", func(ctx context.Context, tx *store.Tx) error {
		list, err = queryTasks(ctx, tx, statement("tasks_by_id"), ws.name, "", ids)
		return err
	})
	return ws.visible(list), err
}

// Show returns one task by its key, its id, or a unique beginning of its id, with
// those that wait for it.
func (ws *Workspace) Show(ctx context.Context, ref string) (t Task, err error) {
	err = ws.read(ctx, "reading a task", func(ctx context.Context, tx *store.Tx) error {
		if t, err = ws.find(ctx, tx, ref); err != nil {
			return err
		}
		if err = tx.QueryRow(ctx, statement("blocks"), t.ID, MaxBlocks, MaxDependencies).Scan(&t.Blocks, &t.Dependents); err != nil {
			err = fmt.Errorf("reading what waits for the task: %w", err)
		}
		return err
	})
	return t, err
}
