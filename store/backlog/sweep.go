package backlog

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// SweptUp counts what a sweep moved.
type SweptUp struct {
	Promoted  int64 // due tasks that became claimable
	Reclaimed int   // expired leases that were taken back
	Expired   int   // tasks whose last moment to be started had passed
	Limits    int64 // budget windows that began anew, and tasks that a spent budget cancelled or moved
	Next      time.Duration
}

// sweepBatch bounds one sweep's statement.
const sweepBatch = 1000

// Sweep moves what only time moves, in all workspaces: due tasks become
// claimable, expired leases are taken back, waiting tasks expire, budget windows
// begin anew. Any number of sweepers may run at once. Next says when to sweep
// again, at most limit from now.
func (b *Backlog) Sweep(ctx context.Context, limit time.Duration) (s SweptUp, err error) {
	if s.Limits, err = b.rollBudgets(ctx); err != nil {
		return s, err
	}
	err = b.db.Tx(ctx, "reclaiming expired leases", func(ctx context.Context, tx *store.Tx) error {
		ids, err := b.expireLeases(ctx, tx, "self")
		s.Reclaimed = len(ids)
		return err
	})
	if err != nil {
		return s, err
	}
	if s.Promoted, s.Next, err = b.promoteDue(ctx, limit); err != nil {
		return s, err
	}
	s.Expired, err = b.expireWaiting(ctx)
	return s, err
}

// Sweep does the instance's sweep: whoever looks at a backlog without a running
// instance has nobody else to do it.
func (ws *Workspace) Sweep(ctx context.Context) (SweptUp, error) {
	return ws.backlog.Sweep(ctx, time.Hour)
}

// expireLeases takes back tasks whose lease has run out. Not the ones of the
// instance's own spoke: it knows whether their processes live, and they may.
func (b *Backlog) expireLeases(ctx context.Context, tx *store.Tx, actor string) ([]string, error) {
	rows, err := tx.Query(ctx, `SELECT l.task::text, l.attempt, l.epoch FROM leases l
		WHERE l.until <= clock_timestamp() AND l.owner <> $1 LIMIT $2 FOR UPDATE SKIP LOCKED`, string(b.db.Self()), sweepBatch)
	if err != nil {
		return nil, fmt.Errorf("looking for expired leases: %w", err)
	}
	fences, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Fence])
	if err != nil || len(fences) == 0 {
		return nil, err
	}
	list := make([]closing, len(fences))
	for i, f := range fences {
		list[i] = closing{fence: f, outcome: "interrupted", why: commands.LeaseExpired}
	}
	moved, err := b.closeAttempts(ctx, tx, actor, list)
	if err != nil {
		return nil, err
	}
	ids := make([]string, len(moved))
	for i, m := range moved {
		ids[i] = m.Task
	}
	return ids, b.report(ctx, tx, moved)
}

// rollBudgets begins windows anew whose time has come, forgets charges that
// have left a rolling window, notes soft limits that were passed, and does what
// spent budgets say is to be done with the tasks that wait for them.
func (b *Backlog) rollBudgets(ctx context.Context) (n int64, err error) {
	err = b.db.Tx(ctx, "rolling budget windows", func(ctx context.Context, tx *store.Tx) error {
		n = 0
		var any bool
		if err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM budgets)`).Scan(&any); err != nil || !any {
			return err
		}
		tag, err := tx.Exec(ctx, `
			WITH old AS (
				DELETE FROM charges c USING budgets b WHERE b.id = c.budget AND c.at <= now() - b.rolling RETURNING c.budget, c.workspace, c.amount
			), left_window AS (
				SELECT budget, workspace, sum(amount)::bigint AS amount FROM old GROUP BY 1, 2 ORDER BY 1
			), forgotten AS (
				INSERT INTO budget_slots AS s (budget, slot, workspace, used) SELECT budget, budget_slot(), workspace, -amount FROM left_window
				ON CONFLICT (budget, slot) DO UPDATE SET used = s.used + excluded.used
			), begun AS (
				UPDATE budgets SET soft_since = NULL,
					resets_at = CASE WHEN every IS NULL THEN NULL ELSE resets_at + every * (1 + floor(extract(epoch FROM now() - resets_at) / extract(epoch FROM every))) END
				WHERE resets_at <= now() RETURNING id
			), emptied AS (
				UPDATE budget_slots SET used = 0 WHERE budget = ANY (ARRAY (SELECT id FROM begun))
			)
			SELECT FROM begun`)
		if err != nil {
			return fmt.Errorf("beginning budget windows anew: %w", err)
		}
		if n = tag.RowsAffected(); n > 0 {
			if err := tellClaimers(ctx, tx); err != nil {
				return err
			}
		}
		_, err = tx.Exec(ctx, `
			WITH passed AS (
				UPDATE budgets b SET soft_since = CASE WHEN f.used + f.reserved >= b.soft THEN now() END FROM funds f
				WHERE f.id = b.id AND b.soft IS NOT NULL AND (f.used + f.reserved >= b.soft) <> (b.soft_since IS NOT NULL) RETURNING b.workspace, b.name, b.soft_since
			)
			INSERT INTO audit (workspace, actor, action, object, code) SELECT workspace, 'self', 'budget.soft_limit', name, 'budget_exceeded' FROM passed WHERE soft_since IS NOT NULL`)
		if err != nil {
			return fmt.Errorf("noting soft limits: %w", err)
		}
		moved, err := b.actOnSpent(ctx, tx)
		n += moved
		return err
	})
	return n, err
}

// actOnSpent cancels or moves the claimable tasks of classes whose budget is
// spent and says so. (queue and refuse leave them where they are.)
func (b *Backlog) actOnSpent(ctx context.Context, tx *store.Tx) (int64, error) {
	rows, err := tx.Query(ctx, `
		SELECT r.task::text, b.on_hard, b.downgrade_to FROM funds b JOIN classes c ON b.workspace IN ('', c.workspace) AND `+scopeFits("b")+`,
			LATERAL (SELECT task FROM ready WHERE class = c.id LIMIT $1) AS r
		WHERE b.on_hard IN ('cancel', 'downgrade') AND $2 = '' AND b.hard - b.used - b.reserved < greatest(1, coalesce((c.estimate->>b.dimension)::bigint, 0))
			AND c.lane <> b.downgrade_to LIMIT $1`, sweepBatch, "")
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

// changeLane moves queued tasks to another lane.
func changeLane(ctx context.Context, tx *store.Tx, tasks []string, lane string) (int64, error) {
	if err := pull(ctx, tx, tasks); err != nil {
		return 0, err
	}
	tag, err := tx.Exec(ctx, `
		WITH moved AS (
			UPDATE tasks t SET class = intern_class(c.workspace, $2, c.kind, c.capabilities, c.account, c.conn, c.only_task, c.estimate), updated_at = clock_timestamp()
			FROM classes c WHERE t.id = ANY ($1::uuid[]) AND c.id = t.class AND t.state = 'queued' RETURNING t.id, t.workspace
		)
		INSERT INTO audit (workspace, actor, action, object, code, why) SELECT workspace, 'self', 'task.downgraded', id::text, 'budget_exceeded', 'to lane ' || $2 FROM moved`, tasks, lane)
	if err != nil {
		return 0, fmt.Errorf("moving tasks to lane %s: %w", lane, err)
	}
	return tag.RowsAffected(), place(ctx, tx, tasks)
}

// promoteDue makes queued tasks whose time has come claimable, and returns how
// many and when the next one comes (at most limit from now).
func (b *Backlog) promoteDue(ctx context.Context, limit time.Duration) (n int64, next time.Duration, err error) {
	err = b.db.Tx(ctx, "promoting due tasks", func(ctx context.Context, tx *store.Tx) error {
		tag, err := tx.Exec(ctx, `
			WITH came AS (
				DELETE FROM due WHERE task IN (SELECT task FROM due WHERE at <= now() ORDER BY at LIMIT $1 FOR UPDATE SKIP LOCKED) RETURNING task
			)
			INSERT INTO ready (class, rank, seq, task, workspace, expires_at)
			SELECT class, -priority, seq, id, workspace, CASE attempt WHEN 0 THEN expires_at ELSE 'infinity' END FROM tasks JOIN came ON task = id WHERE state = 'queued' AND unmet = 0
			ON CONFLICT DO NOTHING`, sweepBatch)
		if err != nil {
			return err
		}
		if n = tag.RowsAffected(); n > 0 {
			if err := tellClaimers(ctx, tx); err != nil {
				return err
			}
		}
		return tx.QueryRow(ctx, `SELECT least(greatest(coalesce(min(at) - clock_timestamp(), $1), interval '0'), $1) FROM due`, limit).Scan(&next)
	})
	return n, next, err
}

// expireWaiting ends tasks that were never started and whose last moment to be
// started has passed; their signed results say so. It returns how many.
func (b *Backlog) expireWaiting(ctx context.Context) (n int, err error) {
	err = b.db.Tx(ctx, "expiring tasks", func(ctx context.Context, tx *store.Tx) error {
		rows, err := tx.Query(ctx, `
			WITH late AS (
				DELETE FROM ready WHERE ctid = ANY (ARRAY (
					SELECT ctid FROM ready WHERE expires_at < 'infinity' AND expires_at <= clock_timestamp() LIMIT $1 FOR UPDATE SKIP LOCKED)) RETURNING task
			), moved AS (
				UPDATE tasks SET state = 'expired', reason = 'command_expired', epoch = epoch + 1, ended_at = clock_timestamp(), updated_at = clock_timestamp()
				WHERE id = ANY (ARRAY (SELECT task FROM late)) AND state = 'queued' AND attempt = 0 RETURNING id, workspace, state
			), audited AS (
				INSERT INTO audit (workspace, actor, action, object, code) SELECT workspace, 'self', 'task.expired', id::text, 'command_expired' FROM moved
			), `+tallySQL+`
			SELECT id::text FROM moved`, sweepBatch)
		if err != nil {
			return err
		}
		tasks, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if n = len(tasks); err != nil || n == 0 {
			return err
		}
		if err := resolveNow(ctx, tx, tasks); err != nil {
			return err
		}
		ends, err := endedTasks(ctx, tx, tasks)
		if err != nil {
			return err
		}
		if err := b.failDependents(ctx, tx, tasks); err != nil {
			return err
		}
		return b.report(ctx, tx, ends)
	})
	return n, err
}

// ReadyCount returns how many tasks wait to be claimed.
func (b *Backlog) ReadyCount(ctx context.Context) (n int, err error) {
	err = b.db.Read(ctx, "counting ready tasks", func(ctx context.Context, conn *pgxpool.Conn) error {
		return conn.QueryRow(ctx, `SELECT count(*) FROM ready`).Scan(&n)
	})
	return n, err
}
