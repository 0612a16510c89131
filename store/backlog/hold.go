package backlog

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// Renew extends the lease of a fence to ttl from now; 0 means [DefaultLease].
func (ws *Workspace) Renew(ctx context.Context, f Fence, ttl time.Duration) (until time.Time, err error) {
	ttl, err = leaseOf(ttl)
	if err != nil {
		return until, err
	}
	err = ws.tx(ctx, "renewing a lease", func(ctx context.Context, tx *store.Tx) error {
		err := tx.QueryRow(ctx, statement("renew_lease"), f.Task, f.Attempt, f.Epoch, ttl).Scan(&until)
		if err == pgx.ErrNoRows {
			return ws.refuseStale(ctx, tx, f)
		}
		return err
	})
	return until, err
}

func (ws *Workspace) refuseStale(ctx context.Context, tx *store.Tx, f Fence) error {
	t, err := ws.find(ctx, tx, f.Task)
	switch {
	case err != nil:
		return err
	case t.Kind == AgentKind:
		return ofSpoke(t)
	}
	return stale(t, f)
}

// Report counts what an attempt has used so far, by dimension, against the
// budgets that its claim reserved of. A key counts once; what is measured is
// recorded also above the hard limit.
func (ws *Workspace) Report(ctx context.Context, f Fence, key string, usage map[string]Amount) error {
	if err := checkText("the report's key", key, MaxKey, true); err != nil {
		return err
	}
	if key == "" || len(usage) == 0 {
		return commands.Refuse(commands.Validation, "a report names a key and at least one amount")
	}
	if err := checkEstimate(usage); err != nil {
		return err
	}
	return ws.tx(ctx, "counting usage", func(ctx context.Context, tx *store.Tx) error { return ws.report(ctx, tx, f, key, usage) })
}

// report moves used amounts from reserved to used, in each budget of the claim
// with that dimension; more than was reserved is used all the same.
func (ws *Workspace) report(ctx context.Context, tx *store.Tx, f Fence, key string, usage map[string]Amount) error {
	if len(usage) == 0 {
		return nil
	}
	var held, fresh bool
	err := tx.QueryRow(ctx, statement("note_usage"), f.Task, f.Attempt, f.Epoch, ws.name, key, rawAmounts(usage)).Scan(&held, &fresh)
	switch {
	case err != nil:
		return fmt.Errorf("recording a usage report: %w", err)
	case !held:
		var before bool
		if err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM usage_reports WHERE task = $1 AND attempt = $2 AND key = $3)`, f.Task, f.Attempt, key).Scan(&before); err != nil || before {
			return err
		}
		return ws.refuseStale(ctx, tx, f)
	case !fresh:
		return nil
	}
	var batch pgx.Batch
	batch.Queue(statement("hold"), []string{f.Task}) // the attempt may end behind this
	batch.Queue(statement("hold_exceeded"), f.Task, rawAmounts(usage))
	batch.Queue(statement("hold_shards_of_usage"), f.Task, rawAmounts(usage))
	// More than was reserved leaves less room.
	batch.Queue(statement("recall_for_usage"), f.Task, rawAmounts(usage))
	batch.Queue(statement("settle_usage"), f.Task, rawAmounts(usage))
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return fmt.Errorf("settling a usage report: %w", err)
	}
	return nil
}

// Unblock puts a blocked task back.
func (ws *Workspace) Unblock(ctx context.Context, a Act) (Task, error) {
	return ws.requeue(ctx, a, commands.ByUnblock, "unblocked", func(ctx context.Context, tx *store.Tx, t Task) error {
		return ws.unpark(ctx, tx, commands.ByUnblock, []string{t.ID}, "operator.unblocked", a.Reason)
	})
}

// Resume lets a paused task be claimed again.
func (ws *Workspace) Resume(ctx context.Context, a Act) (Task, error) {
	return ws.requeue(ctx, a, commands.ByResume, "resumed", func(ctx context.Context, tx *store.Tx, t Task) error {
		return ws.unpark(ctx, tx, commands.ByResume, []string{t.ID}, "operator.resumed", a.Reason)
	})
}

// unpark puts tasks that wait for a person back into the queue.
func (ws *Workspace) unpark(ctx context.Context, tx *store.Tx, by commands.Trigger, tasks []string, action, why string) error {
	if len(tasks) == 0 {
		return nil
	}
	tasks, err := pull(ctx, tx, tasks)
	if err != nil {
		return err
	}
	tag, err := tx.Exec(ctx, statement("unpark"), tasks, ws.name, ws.actor, action, why, commands.From(by))
	if err != nil {
		return fmt.Errorf("putting tasks back into the queue: %w", err)
	}
	if tag.RowsAffected() < int64(len(tasks)) {
		return store.ErrRaced // somebody has moved one since it was looked at: its place is not ours to leave
	}
	return place(ctx, tx, tasks)
}

// maxReplays is how often an operator may run a task again.
const maxReplays = 10

// Retry queues a task that ended without success once more. Its earlier result
// and attempts are kept.
func (ws *Workspace) Retry(ctx context.Context, a Act) (Task, error) {
	return ws.requeue(ctx, a, commands.ByRetry, "retried", func(ctx context.Context, tx *store.Tx, t Task) error {
		if err := holdWithDependents(ctx, tx, t.ID); err != nil {
			return err
		}
		// By itself where nothing waits for it: what the statement behind it sees of its end is then the newest.
		if err := hold(ctx, tx, []string{t.ID}); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, statement("retry"), t.ID, t.State, maxReplays, a.Delay, ws.name)
		if err != nil {
			return fmt.Errorf("queueing task %s again: %w", t.Name(), err)
		}
		if tag.RowsAffected() == 0 {
			return ws.refuseRetry(ctx, tx, t)
		}
		// Those that waited for it need not fear any more, unless another one failed.
		_, err = tx.Exec(ctx, statement("reassure_dependents"), t.ID)
		if err != nil {
			return fmt.Errorf("telling dependents of task %s: %w", t.Name(), err)
		}
		ws.audit(tx, "operator.retried", t.ID, "", a.Reason)
		return place(ctx, tx, []string{t.ID})
	})
}

func (ws *Workspace) refuseRetry(ctx context.Context, tx *store.Tx, t Task) error {
	var waits string
	var replays int
	if err := tx.QueryRow(ctx, `SELECT waiting_reason(id), replays FROM tasks WHERE id = $1`, t.ID).Scan(&waits, &replays); err != nil {
		return fmt.Errorf("asking why a task cannot be retried: %w", err)
	}
	if waits == string(commands.DependencyFailed) {
		return commands.Refuse(commands.Conflict, "task %s is to be cancelled when a dependency fails, and one has", t.Name()).Hinting("retry the dependency first, which is named by").Running("backlog", "why", t.Name())
	}
	if replays < maxReplays {
		return commands.Refuse(commands.Conflict, "somebody else has changed task %s at this moment", t.Name()).Hinting("see").Running("backlog", "show", t.Name())
	}
	return commands.Refuse(commands.Conflict, "task %s was retried %d times, which is the limit", t.Name(), maxReplays).Hinting("create it anew")
}

func (ws *Workspace) requeue(ctx context.Context, a Act, by commands.Trigger, done string, move func(context.Context, *store.Tx, Task) error) (Task, error) {
	if a.Fence != nil {
		return Task{}, commands.Refuse(commands.Validation, "only the operator can do this; a fence is a worker's")
	}
	if err := a.validate(); err != nil {
		return Task{}, err
	}
	var t Task
	err := ws.tx(ctx, "a task being "+done, func(ctx context.Context, tx *store.Tx) (err error) {
		if t, err = ws.find(ctx, tx, a.Task); err != nil {
			return err
		}
		if t.asked && by == commands.ByResume {
			return numbered(t, "resume")
		}
		if !commands.May(t.State, commands.Queued, by) {
			return commands.Refuse(commands.Conflict, "task %s is %s and cannot be %s", t.Name(), t.State, done).Hinting("see").Running("backlog", "show", t.Name())
		}
		if t.asked && by == commands.ByRetry {
			return commands.Refuse(commands.Conflict, "task %s was ordered by a hub, which was told its end; let the hub spawn it again", t.Name())
		}
		return move(ctx, tx, t)
	})
	if err != nil {
		return Task{}, err
	}
	return ws.Show(ctx, t.ID)
}

// Reclaim takes back claims: every one whose lease has run out, or the one of
// ref, run out or not. Blocked tasks are put back too when they are named.
func (ws *Workspace) Reclaim(ctx context.Context, ref string) ([]Task, error) {
	if ref == "" {
		ids, err := ws.reclaimExpired(ctx)
		if err != nil {
			return nil, err
		}
		return ws.ShowAll(ctx, ids)
	}
	t, err := ws.Show(ctx, ref)
	if err != nil {
		return nil, err
	}
	if t.State == commands.Blocked {
		t, err = ws.Unblock(ctx, Act{Task: t.ID, Reason: "reclaimed"})
		return []Task{t}, err
	}
	t, err = ws.Release(ctx, Act{Task: t.ID, Reason: "reclaimed by the operator"})
	if err != nil {
		return nil, err
	}
	return []Task{t}, nil
}

// reclaimExpired takes back what has run out in bounded transactions until there
// is no more of it.
func (ws *Workspace) reclaimExpired(ctx context.Context) (all []string, err error) {
	for {
		var ids []string
		err := ws.tx(ctx, "reclaiming expired leases", func(ctx context.Context, tx *store.Tx) (err error) {
			ids, err = ws.backlog.expireLeases(ctx, tx, ws.actor)
			return err
		})
		all = append(all, ids...)
		if err != nil || len(ids) < sweepBatch {
			return all, err
		}
	}
}
