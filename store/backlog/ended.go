package backlog

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// An End is how an attempt ended, by the supervisor's evidence.
type End struct {
	Fence     Fence
	Outcome   commands.Outcome
	Why       commands.Reason // "" = what the outcome implies
	Exit      commands.Exit
	Stdout    commands.Output
	Stderr    commands.Output
	Reaped    []commands.Process
	Survivors []commands.Process
}

// Limits of what the backlog does by itself after a failure.
const (
	backoffBase = 30 * time.Second
	backoffCap  = time.Hour
)

// A closing ends one attempt. Outcome decides where the task goes.
type closing struct {
	fence   Fence
	outcome string
	why     commands.Reason // "" = what the outcome implies
	final   bool            // a failure is not retried
	delay   time.Duration   // before a released task is ready again
	exit    any
}

// closeAttempts moves tasks on by the ends of their attempts, as far as the
// fences hold, with all that follows: history, budgets, dependents, the place
// where the task stands next. A fence that does not hold changes nothing and is
// not among the answers.
func (b *Backlog) closeAttempts(ctx context.Context, tx *store.Tx, actor string, list []closing) ([]Moved, error) {
	if len(list) == 0 {
		return nil, nil
	}
	var moved []Moved
	var batch pgx.Batch
	tasks := queueClose(&batch, closeSQL, actor, list, func(rows pgx.Rows) (err error) {
		moved, err = pgx.CollectRows(rows, scanMoved)
		return err
	})
	// Statements of their own, with a snapshot from after the rows were locked:
	// whoever linked to one of them before is seen, whoever links later waits and
	// then sees it completed.
	free := resolve(&batch, tasks)
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return nil, fmt.Errorf("closing attempts: %w", err)
	}
	if err := free(ctx, tx); err != nil {
		return nil, err
	}
	return moved, b.followUp(ctx, tx, moved)
}

// queueClose queues the statement that ends attempts; answer gets its rows.
func queueClose(batch *pgx.Batch, sql, actor string, list []closing, answer func(pgx.Rows) error) (tasks [][16]byte) {
	f := fencesOf(list, func(c closing) Fence { return c.fence })
	tasks = uuids(f.task)
	outcomes, why, final := make([]string, len(list)), make([]string, len(list)), make([]bool, len(list))
	delays, exits := make([]int64, len(list)), make([]any, len(list))
	for i, c := range list {
		outcomes[i], why[i], final[i] = c.outcome, string(c.why), c.final
		delays[i], exits[i] = c.delay.Milliseconds(), c.exit
	}
	batch.Queue(sql, tasks, f.attempt, f.epoch, outcomes, exits, why, final, delays, backoffBase, backoffCap, actor).Query(answer)
	return tasks
}

// uuids are ids in the form in which they travel fastest. What is no id is the
// id of no task.
func uuids(ids []string) [][16]byte {
	list := make([][16]byte, len(ids))
	for i, id := range ids {
		if u, err := uuid.Parse(id); err == nil {
			list[i] = u
		}
	}
	return list
}

// completeSQL is closeSQL for workers of cards that are done: the task ends, and
// nothing but its dependents follows. It answers with the places in the list.
var completeSQL = strings.NewReplacer("AND t.state IN (", "AND t.reason <> 'kill_requested' AND t.conn IS NULL AND t.state IN (",
	closedAnswer, "\n	SELECT n FROM moved").Replace(closeSQL)

// followUp does what a completed task does not need.
func (b *Backlog) followUp(ctx context.Context, tx *store.Tx, moved []Moved) error {
	var queued, blocked, bad []string
	for _, m := range moved {
		switch {
		case m.State == commands.Queued:
			queued = append(queued, m.Task)
		case m.State == commands.Blocked:
			blocked = append(blocked, m.Task)
		case m.State != commands.Completed:
			bad = append(bad, m.Task)
		}
	}
	if err := place(ctx, tx, queued); err != nil {
		return err
	}
	if err := park(ctx, tx, blocked, "blocked"); err != nil {
		return err
	}
	return b.failDependents(ctx, tx, bad)
}

// tallySQL counts tasks that moved to a terminal state.
const tallySQL = `
	tally AS (
		INSERT INTO tallies (workspace, state, slot, n) SELECT workspace, state, pg_backend_pid() % 16, count(*) FROM moved WHERE is_terminal(state) GROUP BY 1, 2 ORDER BY 1, 2
		ON CONFLICT (workspace, state, slot) DO UPDATE SET n = tallies.n + excluded.n
	)`

// closeSQL: writing parts run in the reverse of their order here, so budgets are
// taken last and held for the shortest time. What a claim reserved is charged as the estimate, unless usage of
// that dimension was reported meanwhile or the work never began.
const closeSQL = `
	WITH f AS (
		SELECT * FROM unnest($1::uuid[], $2::int[], $3::bigint[], $4::text[], $5::jsonb[], $6::text[], $7::bool[], $8::bigint[])
			WITH ORDINALITY AS u (task, attempt, epoch, outcome, exit, why, final, delay, n)
	), moved AS (
		UPDATE tasks t SET state = ` + nextState + `, updated_at = clock_timestamp(),
			reason = next_reason(` + countsAs + `, f.final, f.why, t.reason, t.retries, t.max_retries, t.max_losses, t.reclaims),
			ended_at = CASE WHEN is_terminal(` + nextState + `) THEN clock_timestamp() END,
			retries = t.retries + (` + countsAs + ` IN ('failed', 'lost') AND ` + nextState + ` = 'queued')::int,
			reclaims = t.reclaims + (` + countsAs + ` = 'interrupted' AND ` + nextState + ` = 'queued')::int,
			next_type = CASE f.outcome WHEN 'failed' THEN 'retry' WHEN 'interrupted' THEN 'reclaim' WHEN 'blocked' THEN 'resume' ELSE t.next_type END,
			not_before = CASE WHEN ` + countsAs + ` IN ('failed', 'lost') OR t.max_losses IS NOT NULL AND ` + countsAs + ` = 'interrupted'
					THEN now() + least($10::interval, $9::interval * 2 ^ least(CASE ` + countsAs + ` WHEN 'interrupted' THEN t.reclaims ELSE t.retries END, 20)) * random()
				WHEN f.delay > 0 THEN now() + f.delay * interval '1 millisecond' END
		FROM f WHERE t.id = f.task AND t.attempt = f.attempt AND t.epoch = f.epoch AND t.state IN ('claimed', 'running', 'awaiting_input')
		RETURNING t.id, t.workspace, t.attempt, t.epoch, t.state, t.reason, t.conn, t.command, t.command_digest, t.started_at, f.n, f.outcome, f.exit
	), closed AS (
		DELETE FROM leases l USING moved m WHERE l.task = m.id
		RETURNING l.task, l.attempt, l.workspace, l.epoch, l.type, l.owner, l.claim, l.claimed_at, l.started_at, l.reserved, l.used, m.outcome, m.exit, m.State, m.reason
	), alike AS MATERIALIZED (
		SELECT reserved, used, outcome, count(*) AS n FROM closed WHERE reserved IS NOT NULL GROUP BY 1, 2, 3
	), dues AS MATERIALIZED (
		SELECT b.id, b.workspace, b.rolling, sum(c.n * r.value::bigint)::bigint AS held,
			(sum(c.n * r.value::bigint) FILTER (WHERE c.outcome NOT IN ('released', 'unavailable') AND NOT coalesce(c.used ? b.dimension, false)))::bigint AS spent
		FROM alike c, jsonb_each_text(c.reserved) AS r JOIN budgets b ON b.id = r.key::int GROUP BY b.id, b.workspace, b.rolling ORDER BY b.id
	), settled AS (
		INSERT INTO budget_slots AS s (budget, slot, workspace, used, reserved) SELECT id, budget_slot(), workspace, coalesce(spent, 0), -held FROM dues WHERE held > 0
		ON CONFLICT (budget, slot) DO UPDATE SET used = s.used + excluded.used, reserved = s.reserved + excluded.reserved
	), kept AS (
		INSERT INTO ended_attempts (task, number, workspace, epoch, type, owner, claim, claimed_at, started_at, outcome, exit, charged)
		SELECT task, attempt, workspace, epoch, type, owner, claim, claimed_at, started_at, outcome, exit, reserved FROM closed
	), charged AS (
		INSERT INTO charges (budget, workspace, amount) SELECT id, workspace, spent FROM dues WHERE rolling IS NOT NULL AND spent > 0
	), session AS (
		UPDATE sessions s SET state = 'retired', ended_at = clock_timestamp() FROM moved m WHERE m.command IS NOT NULL AND s.task = m.id AND s.attempt = m.attempt
	), audited AS (
		INSERT INTO audit (workspace, actor, action, object, code, why, tasks)
		SELECT workspace, $11, 'task.' || state, (CASE count(*) WHEN 1 THEN (array_agg(task))[1] ELSE claim END)::text, reason,
			CASE count(*) WHEN 1 THEN 'attempt ' || min(attempt) || ' ' || outcome ELSE outcome END, array_agg(task)
		FROM closed GROUP BY workspace, claim, state, reason, outcome
	), ` + tallySQL + closedAnswer

const (
	countsAs  = `counts_as(f.outcome, t.max_losses)`
	nextState = `next_state(` + countsAs + `, f.final, t.reason, t.retries, t.max_retries, t.max_losses, t.reclaims)`
)

const closedAnswer = `
	SELECT n, ` + movedColumns + `, clock_timestamp() FROM moved ORDER BY n`
