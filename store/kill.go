package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
)

// kill records a kill and does what can be done at once: a task that does not
// run is cancelled here; one that runs loses its lease here, so that nothing its
// worker writes counts any more, and is ended by the caller; one that is not
// here yet leaves a tombstone.
func (in *intake) kill(ctx context.Context, i int, b *commands.Kill) error {
	m := in.batch[i]
	_, err := in.tx.Exec(ctx, `INSERT INTO kills (conn, command, digest, task, reason, grace, exp) VALUES ($1, $2, $3, $4, $5, $6, $7)`,
		m.Conn, m.Header.ID, m.Digest[:], b.Task, b.Reason, b.Grace(), time.UnixMilli(m.Header.Exp))
	if err != nil {
		return fmt.Errorf("recording the kill of task %s: %w", b.Task, err)
	}
	var state commands.State
	var foreign bool
	err = in.tx.QueryRow(ctx, `SELECT state, conn IS DISTINCT FROM $2 FROM tasks WHERE id = $1 FOR UPDATE`, b.Task, m.Conn).Scan(&state, &foreign)
	switch {
	case err == pgx.ErrNoRows:
		in.answer(m, LaneEvt, &commands.Accepted{Task: b.Task, State: commands.Cancelled})
		in.note(m, "task.tombstone", "", b.Reason)
		return nil
	case err != nil:
		return fmt.Errorf("looking up task %s: %w", b.Task, err)
	case foreign:
		in.refuse(i, commands.Refuse(commands.UnknownTask, "no task %s of yours here", b.Task))
		return nil
	}
	in.answer(m, LaneEvt, &commands.Accepted{Task: b.Task, State: state})
	in.note(m, "task.kill", "", b.Reason)
	switch {
	case state.Terminal():
		return in.answerKills(ctx, b.Task, state, nil, nil)
	case commands.May(state, commands.Cancelled, commands.ByCancel):
		return in.cancelWaiting(ctx, m, b.Task)
	}
	return in.revokeLease(ctx, i, b)
}

// cancelWaiting ends a task that no attempt holds. A claim that was faster is
// met like any other running task: by what asks again.
func (in *intake) cancelWaiting(ctx context.Context, m Incoming, task string) error {
	done, err := in.db.cancelWaiting(ctx, in.tx, string(m.Header.Iss), []string{task}, commands.KillRequested)
	if err != nil {
		return err
	}
	if err := in.db.failDependents(ctx, in.tx, done); err != nil {
		return err
	}
	return in.answerKills(ctx, task, commands.Cancelled, nil, nil)
}

// revokeLease takes a running task from its worker. The killer's fence is the
// new epoch.
func (in *intake) revokeLease(ctx context.Context, i int, b *commands.Kill) error {
	k := &KillRun{Fence: Fence{Task: b.Task}, Grace: b.Grace()}
	err := in.tx.QueryRow(ctx, `WITH killed AS (
			UPDATE tasks SET epoch = epoch + 1, reason = 'kill_requested', updated_at = clock_timestamp() WHERE id = $1 RETURNING id, attempt, epoch
		), lease AS (
			UPDATE leases l SET epoch = k.epoch FROM killed k WHERE l.task = k.id
		)
		SELECT attempt, epoch FROM killed`,
		b.Task).Scan(&k.Fence.Attempt, &k.Fence.Epoch)
	if err != nil {
		return fmt.Errorf("revoking the lease of task %s: %w", b.Task, err)
	}
	in.taken[i].Kill = k
	return nil
}

func (in *intake) answerKills(ctx context.Context, task string, state commands.State, reaped, survivors []commands.Process) error {
	return answerKills(ctx, in.tx, task, state, reaped, survivors)
}

// answerKills answers every kill of task that was not answered yet.
func answerKills(ctx context.Context, tx *Tx, task string, state commands.State, reaped, survivors []commands.Process) error {
	rows, err := tx.Query(ctx, `UPDATE kills k SET answered_at = clock_timestamp() FROM tasks t
		WHERE k.task = $1 AND t.id = k.task AND k.answered_at IS NULL
		RETURNING k.conn::text, k.command::text, k.digest, t.reason, (extract(epoch FROM clock_timestamp()) * 1000)::bigint`, task)
	if err != nil {
		return fmt.Errorf("answering kills of task %s: %w", task, err)
	}
	var conn, command string
	var digest []byte
	var reason commands.Reason
	var at int64
	_, err = pgx.ForEachRow(rows, []any{&conn, &command, &digest, &reason, &at}, func() error {
		tx.Send(Draft{Conn: conn, Lane: LaneEvt, Task: task, Re: &signing.Ref{ID: command, SHA256: digestHex(digest)},
			Body: &commands.Killed{Task: task, State: state, Reason: reason, Reaped: reaped, Survivors: survivors, At: at}})
		return nil
	})
	if err != nil {
		return fmt.Errorf("answering kills of task %s: %w", task, err)
	}
	return nil
}

// PendingKill returns the kill that was asked for a task whose lease it took,
// with the fence that ends it. ok is false when there is none.
func (db *DB) PendingKill(ctx context.Context, task string) (k KillRun, ok bool, err error) {
	err = db.retry(ctx, func(ctx context.Context) error {
		k = KillRun{Fence: Fence{Task: task}}
		return db.pool.QueryRow(ctx, `SELECT t.attempt, t.epoch, coalesce(min(k.grace) FILTER (WHERE k.answered_at IS NULL), interval '10 seconds')
			FROM tasks t LEFT JOIN kills k ON k.task = t.id
			WHERE t.id = $1 AND NOT is_terminal(t.state) AND t.reason = 'kill_requested' GROUP BY t.attempt, t.epoch`, task).
			Scan(&k.Fence.Attempt, &k.Fence.Epoch, &k.Grace)
	})
	if err == pgx.ErrNoRows {
		return k, false, nil
	}
	if err != nil {
		return k, false, fmt.Errorf("looking for kills of task %s: %w", task, err)
	}
	return k, true, nil
}

// RevokeWork takes everything that connection conn asked for from its workers
// and ends what waits: the peer was revoked on this side. It returns what runs
// and must be ended now. Results stay in the outbox unsent: a revoked peer gets
// nothing.
func (db *DB) RevokeWork(ctx context.Context, conn string) ([]KillRun, error) {
	var list []KillRun
	err := db.Tx(ctx, "ending the work of a revoked connection", func(ctx context.Context, tx *Tx) error {
		list = nil
		rows, err := tx.Query(ctx, `SELECT id::text FROM tasks WHERE conn = $1 AND state IN ('queued', 'paused', 'blocked')`, conn)
		if err != nil {
			return err
		}
		waiting, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return err
		}
		if len(waiting) > 0 {
			done, err := db.cancelWaiting(ctx, tx, "self", waiting, commands.KillRequested)
			if err != nil {
				return err
			}
			if err := db.failDependents(ctx, tx, done); err != nil {
				return err
			}
		}
		rows, err = tx.Query(ctx, `WITH killed AS (
				UPDATE tasks SET epoch = epoch + 1, reason = 'kill_requested', updated_at = clock_timestamp()
				WHERE conn = $1 AND state IN ('claimed', 'running', 'awaiting_input') RETURNING id, attempt, epoch
			), lease AS (
				UPDATE leases l SET epoch = k.epoch FROM killed k WHERE l.task = k.id
			)
			SELECT id::text, attempt, epoch FROM killed`, conn)
		if err != nil {
			return err
		}
		var k KillRun
		k.Grace = 10 * time.Second
		_, err = pgx.ForEachRow(rows, []any{&k.Fence.Task, &k.Fence.Attempt, &k.Fence.Epoch}, func() error { list = append(list, k); return nil })
		return err
	})
	return list, err
}
