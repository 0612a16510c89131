package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
)

// An End is how an attempt ended, by the supervisor's evidence.
type End struct {
	Fence     Fence
	Outcome   commands.Outcome
	Exit      commands.Exit
	Stdout    commands.Output
	Stderr    commands.Output
	Reaped    []commands.Process
	Survivors []commands.Process
}

// Limits of what the backlog does by itself after a bad end.
const (
	maxReclaims = 100
	backoffBase = 30 * time.Second
	backoffCap  = time.Hour
)

func (db *DB) markEnded(ctx context.Context, tx pgx.Tx, ends []End, held []bool, at []int) ([]draft, error) {
	if len(ends) == 0 {
		return nil, nil
	}
	moved, err := moveEnded(ctx, tx, ends)
	if err != nil {
		return nil, err
	}
	evidence := map[string]End{}
	for _, m := range moved {
		held[at[m.n-1]] = true
		evidence[m.task] = ends[m.n-1]
	}
	drafts, err := resultDrafts(ctx, tx, moved, evidence)
	if err != nil {
		return nil, err
	}
	for _, m := range moved {
		if !m.killed {
			continue
		}
		e := evidence[m.task]
		answers, err := killDrafts(ctx, tx, m.task, m.state, e.Reaped, e.Survivors)
		if err != nil {
			return nil, err
		}
		drafts = append(drafts, answers...)
	}
	return drafts, nil
}

// ended is a task whose attempt was just closed.
type ended struct {
	n       int
	task    string
	state   commands.State
	reason  commands.Reason
	attempt int
	asked   asked
	killed  bool
	started int64
	at      int64
}

// moveEnded applies rows 4, 5, 11, 17, 19 and 20 of the transition table.
func moveEnded(ctx context.Context, tx pgx.Tx, ends []End) ([]ended, error) {
	f := fencesOf(ends, func(e End) Fence { return e.Fence })
	outcomes, exits := make([]string, len(ends)), make([]commands.Exit, len(ends))
	for i, e := range ends {
		outcomes[i], exits[i] = string(e.Outcome), e.Exit
	}
	rows, err := tx.Query(ctx, `
		WITH f AS (
			SELECT * FROM unnest($1::uuid[], $2::int[], $3::bigint[], $4::text[], $5::jsonb[]) WITH ORDINALITY AS u (task, attempt, epoch, outcome, exit, n)
		), next AS (
			SELECT f.*, t.lane, t.workspace, t.requires, t.priority, t.expires_at,
				CASE WHEN t.reason = 'kill_requested' THEN 'cancelled'
				     WHEN outcome = 'succeeded' THEN 'completed' WHEN outcome = 'timed_out' THEN 'expired'
				     WHEN outcome = 'killed' THEN 'cancelled' WHEN outcome = 'unavailable' THEN 'unavailable'
				     WHEN outcome = 'failed' AND t.retries < t.max_retries THEN 'queued'
				     WHEN outcome = 'interrupted' AND t.reclaims < $6 THEN 'queued'
				     ELSE 'failed' END::task_state AS state,
				CASE WHEN t.reason = 'kill_requested' OR outcome = 'killed' THEN 'kill_requested'
				     WHEN outcome = 'timed_out' THEN 'deadline_elapsed' WHEN outcome = 'unavailable' THEN 'capability_missing'
				     WHEN outcome = 'interrupted' AND t.reclaims < $6 THEN 'executor_died' WHEN outcome = 'interrupted' THEN 'reclaims_exhausted'
				     WHEN outcome = 'failed' AND t.max_retries > 0 AND t.retries >= t.max_retries THEN 'retries_exhausted'
				     ELSE '' END AS reason,
				least($8::interval, $7::interval * 2 ^ least(t.retries, 20)) * random() AS backoff
			FROM f JOIN tasks t ON t.id = f.task AND t.attempt = f.attempt AND t.epoch = f.epoch AND t.state IN ('claimed', 'running', 'awaiting_input')
			FOR UPDATE OF t
		), moved AS (
			UPDATE tasks t SET state = next.state, reason = next.reason, updated_at = clock_timestamp(),
				ended_at = CASE WHEN is_terminal(next.state) THEN clock_timestamp() END,
				retries = t.retries + (next.state = 'queued' AND next.outcome = 'failed')::int,
				reclaims = t.reclaims + (next.state = 'queued' AND next.outcome = 'interrupted')::int,
				next_type = CASE next.outcome WHEN 'failed' THEN 'retry' WHEN 'interrupted' THEN 'reclaim' ELSE t.next_type END
			FROM next WHERE t.id = next.task
			RETURNING t.id, t.attempt, t.epoch, t.state, t.reason, t.conn, t.command, t.command_digest, t.started_at, next.n, next.outcome, next.exit, next.backoff
		), attempt AS (
			UPDATE attempts a SET ended_at = clock_timestamp(), outcome = m.outcome, exit = m.exit FROM moved m WHERE a.task = m.id AND a.number = m.attempt
		), lease AS (
			DELETE FROM leases WHERE task = ANY (ARRAY (SELECT id FROM moved))
		), session AS (
			UPDATE sessions s SET state = 'retired', ended_at = clock_timestamp() FROM moved m WHERE s.task = m.id AND s.attempt = m.attempt
		), later AS (
			INSERT INTO due (at, task) SELECT clock_timestamp() + CASE WHEN outcome = 'failed' THEN backoff ELSE interval '0' END, id FROM moved WHERE state = 'queued'
		), audited AS (
			INSERT INTO audit (actor, action, object, code, why) SELECT 'self', 'task.' || state, id::text, reason, 'attempt ' || attempt || ' ' || outcome FROM moved
		)
		SELECT n, id::text, state, reason, attempt, coalesce(conn::text, ''), coalesce(command::text, ''), command_digest, epoch,
			reason = 'kill_requested' AS killed, coalesce((extract(epoch FROM started_at) * 1000)::bigint, 0),
			(extract(epoch FROM clock_timestamp()) * 1000)::bigint FROM moved ORDER BY n`,
		f.task, f.attempt, f.epoch, outcomes, exits, maxReclaims, backoffBase, backoffCap)
	if err != nil {
		return nil, fmt.Errorf("closing attempts: %w", err)
	}
	return pgx.CollectRows(rows, scanEnded)
}

func scanEnded(row pgx.CollectableRow) (ended, error) {
	var e ended
	err := row.Scan(&e.n, &e.task, &e.state, &e.reason, &e.attempt, &e.asked.conn, &e.asked.command, &e.asked.digest, &e.asked.epoch,
		&e.killed, &e.started, &e.at)
	return e, err
}

// endedTasks reads tasks that ended without an attempt's evidence.
func endedTasks(ctx context.Context, tx pgx.Tx, tasks []string) ([]ended, error) {
	rows, err := tx.Query(ctx, `SELECT 1, id::text, state, reason, attempt, coalesce(conn::text, ''), coalesce(command::text, ''), command_digest, epoch,
			reason = 'kill_requested', coalesce((extract(epoch FROM started_at) * 1000)::bigint, 0), (extract(epoch FROM ended_at) * 1000)::bigint
		FROM tasks WHERE id = ANY ($1::uuid[])`, tasks)
	if err != nil {
		return nil, fmt.Errorf("reading ended tasks: %w", err)
	}
	return pgx.CollectRows(rows, scanEnded)
}

// resultDrafts stores the results of tasks that reached a terminal state and
// drafts the messages that tell of them; a task that goes on gets a receipt.
func resultDrafts(ctx context.Context, tx pgx.Tx, list []ended, evidence map[string]End) ([]draft, error) {
	var drafts []draft
	var tasks []string
	var results []*commands.Result
	for _, e := range list {
		x := evidence[e.task]
		if !e.state.Terminal() {
			if e.asked.conn != "" {
				drafts = append(drafts, e.asked.draft(LaneEvt, &commands.Ended{Task: e.task, Attempt: e.attempt, Outcome: x.Outcome,
					State: e.state, Reason: e.reason, Exit: x.Exit, At: e.at}, e.task, e.attempt))
			}
			continue
		}
		r := &commands.Result{Task: e.task, State: e.state, Reason: e.reason, Attempt: e.attempt, Outcome: x.Outcome, Exit: x.Exit,
			Stdout: x.Stdout, Stderr: x.Stderr, Reaped: x.Reaped, Survivors: x.Survivors, StartedAt: e.started, EndedAt: e.at}
		if x.Outcome == "" {
			r.Exit.Code = -1
		}
		r.Summary = r.Sentence()
		tasks, results = append(tasks, e.task), append(results, r)
		if e.asked.conn != "" {
			drafts = append(drafts, e.asked.draft(LaneRes, r, e.task, e.attempt))
		}
	}
	if len(tasks) == 0 {
		return drafts, nil
	}
	_, err := tx.Exec(ctx, `UPDATE task_bodies b SET result = u.result FROM unnest($1::uuid[], $2::jsonb[]) AS u (task, result) WHERE b.task = u.task`, tasks, results)
	if err != nil {
		return nil, fmt.Errorf("storing results: %w", err)
	}
	return drafts, nil
}
