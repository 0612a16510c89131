package store

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
)

// A Start is the proof that the agent of an attempt runs.
type Start struct {
	Fence  Fence
	Pid    int
	BootID string
	Policy string // version of the spoke's policy that let it start
}

// A Progress is the start or the end of an attempt: exactly one of the two.
type Progress struct {
	Start *Start
	End   *End
}

// Record moves tasks on by the proofs of a batch: started ones to running, ended
// ones to a terminal state, whose signed result goes out, or back to queued while
// their retries last. Those who asked are told in the same transaction. It
// answers for each whether its fence still held; where not, nothing was changed,
// and the caller must end what it started.
func (db *DB) Record(ctx context.Context, batch []Progress) ([]bool, error) {
	held := make([]bool, len(batch))
	err := db.Tx(ctx, "recording progress", func(ctx context.Context, tx *Tx) error {
		clear(held)
		var starts []Start
		var ends []End
		var startAt, endAt []int
		for i, p := range batch {
			if p.Start != nil {
				starts, startAt = append(starts, *p.Start), append(startAt, i)
			} else {
				ends, endAt = append(ends, *p.End), append(endAt, i)
			}
		}
		if err := markStarted(ctx, tx, starts, held, startAt); err != nil {
			return err
		}
		return db.markEnded(ctx, tx, ends, held, endAt)
	})
	return held, err
}

func markStarted(ctx context.Context, tx *Tx, starts []Start, held []bool, at []int) error {
	if len(starts) == 0 {
		return nil
	}
	f := fencesOf(starts, func(s Start) Fence { return s.Fence })
	pids, boots := make([]int, len(starts)), make([]string, len(starts))
	for i, s := range starts {
		pids[i], boots[i] = s.Pid, s.BootID
	}
	rows, err := tx.Query(ctx, `
		WITH f AS (
			SELECT * FROM unnest($1::uuid[], $2::int[], $3::bigint[], $4::int[], $5::text[]) WITH ORDINALITY AS u (task, attempt, epoch, pid, boot, n)
		), moved AS (
			UPDATE tasks t SET state = 'running', started_at = coalesce(t.started_at, clock_timestamp()), updated_at = clock_timestamp()
			FROM f JOIN leases a ON a.task = f.task AND a.attempt = f.attempt
			WHERE t.id = f.task AND t.attempt = f.attempt AND t.epoch = f.epoch AND t.state IN ('claimed', 'running')
			RETURNING t.id, t.workspace, t.attempt, t.conn, t.command, t.command_digest, t.epoch, f.pid, f.boot, f.n, a.started_at IS NULL AS fresh
		), attempt AS (
			UPDATE leases a SET started_at = clock_timestamp() FROM moved m WHERE m.fresh AND a.task = m.id
		), session AS (
			INSERT INTO sessions (task, attempt, agent, pid, boot_id, state) SELECT id, attempt, id, pid, boot, 'online' FROM moved WHERE fresh ON CONFLICT DO NOTHING
		), audited AS (
			INSERT INTO audit (workspace, actor, action, object) SELECT workspace, 'self', 'task.running', id::text FROM moved WHERE fresh
		)
		SELECT n, fresh, id::text, attempt, epoch, coalesce(conn::text, ''), coalesce(command::text, ''), command_digest, pid,
			(extract(epoch FROM clock_timestamp()) * 1000)::bigint FROM moved ORDER BY n`, f.task, f.attempt, f.epoch, pids, boots)
	if err != nil {
		return err
	}
	var n int
	var fresh bool
	var a asked
	var b commands.Started
	_, err = pgx.ForEachRow(rows, []any{&n, &fresh, &b.Task, &b.Attempt, &a.epoch, &a.conn, &a.command, &a.digest, &b.Pid, &b.At}, func() error {
		held[at[n-1]] = true
		if fresh && a.conn != "" {
			body := b
			body.Policy = starts[n-1].Policy
			tx.Send(a.draft(LaneEvt, &body, b.Task, b.Attempt))
		}
		return nil
	})
	return err
}

// asked is who asked for a task, for the answers that go back.
type asked struct {
	conn, command string
	digest        []byte
	epoch         int64
}

func (a asked) draft(lane string, body commands.Body, task string, attempt int) Draft {
	return Draft{Conn: a.conn, Lane: lane, Task: task, Body: body,
		Re: &signing.Ref{ID: a.command, SHA256: digestHex(a.digest), Attempt: attempt, Fence: a.epoch}}
}

type fenceRows struct {
	task    []string
	attempt []int
	epoch   []int64
}

func fencesOf[T any](list []T, fence func(T) Fence) fenceRows {
	var r fenceRows
	for _, x := range list {
		f := fence(x)
		r.task, r.attempt, r.epoch = append(r.task, f.Task), append(r.attempt, f.Attempt), append(r.epoch, f.Epoch)
	}
	return r
}
