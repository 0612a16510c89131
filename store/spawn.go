package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
)

// spawn puts the tasks of spawn messages into the backlog. A task that is there
// already is answered with its state; a task that was killed before it arrived
// is refused.
func (in *intake) spawn(ctx context.Context, which []int) error {
	if len(which) == 0 {
		return nil
	}
	buried, err := in.tombstones(ctx, which)
	if err != nil {
		return err
	}
	which = slices.DeleteFunc(which, func(i int) bool {
		_, dead := buried[TaskOf(in.batch[i].Body)]
		if dead {
			in.refuse(i, commands.Refuse(commands.Tombstone, "the task was killed before it arrived: %s", buried[TaskOf(in.batch[i].Body)]))
		}
		return dead
	})
	fresh, err := in.insertTasks(ctx, which)
	if err != nil {
		return err
	}
	for _, i := range which {
		m, task := in.batch[i], TaskOf(in.batch[i].Body)
		if !fresh[task] {
			if err := in.knownTask(ctx, i); err != nil {
				return err
			}
			continue
		}
		delete(fresh, task)
		in.taken[i].Queued = true
		in.answer(m, LaneEvt, &commands.Accepted{Task: task, State: commands.Queued, Policy: m.Policy})
		in.note(m, "task.queued", "", "")
	}
	return nil
}

func (in *intake) tombstones(ctx context.Context, which []int) (map[string]string, error) {
	tasks := make([]string, len(which))
	for n, i := range which {
		tasks[n] = TaskOf(in.batch[i].Body)
	}
	rows, err := in.tx.Query(ctx, `SELECT k.task::text, k.reason FROM kills k WHERE k.task = ANY ($1::uuid[])
		AND NOT EXISTS (SELECT FROM tasks t WHERE t.id = k.task)`, tasks)
	if err != nil {
		return nil, fmt.Errorf("looking for tombstones: %w", err)
	}
	buried, task, reason := map[string]string{}, "", ""
	_, err = pgx.ForEachRow(rows, []any{&task, &reason}, func() error { buried[task] = reason; return nil })
	return buried, err
}

// insertTasks adds tasks, their bodies and their places in ready, and returns
// the ids of those that were new.
func (in *intake) insertTasks(ctx context.Context, which []int) (map[string]bool, error) {
	var id, conn, title, command []string
	var classes, priority, retries []int
	var digest, spec [][]byte
	var expires []time.Time
	for _, i := range which {
		m := in.batch[i]
		s := m.Body.(*commands.Spawn)
		class, err := in.class(ctx, m.Conn, s)
		if err != nil {
			return nil, err
		}
		raw, err := json.Marshal(s)
		if err != nil {
			return nil, err
		}
		id, conn, title = append(id, s.Task), append(conn, m.Conn), append(title, s.Title)
		command, digest = append(command, m.Header.ID), append(digest, m.Digest[:])
		classes, priority, retries = append(classes, class), append(priority, s.Priority), append(retries, s.MaxRetries)
		spec, expires = append(spec, raw), append(expires, time.UnixMilli(m.Header.Exp))
	}
	rows, err := in.tx.Query(ctx, `
		WITH new AS (
			SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::uuid[], $5::bytea[], $6::int[], $7::int[], $8::int[], $9::jsonb[], $10::timestamptz[])
				WITH ORDINALITY AS u (id, conn, title, command, digest, class, priority, retries, spec, expires_at, n)
		), added AS (
			INSERT INTO tasks (id, conn, title, command, command_digest, class, priority, max_retries, expires_at)
			SELECT id, conn, title, command, digest, class, priority, retries, expires_at FROM new ORDER BY n
			ON CONFLICT (id) DO NOTHING RETURNING id, seq, workspace, command, class, priority, expires_at
		), bodies AS (
			INSERT INTO task_bodies (task, workspace, spec) SELECT id, workspace, spec FROM new JOIN added USING (id, command)
		), agents AS (
			INSERT INTO agents (id, name, runtime) SELECT id, title, spec->>'runtime' FROM new JOIN added USING (id, command)
		), places AS (
			INSERT INTO ready (class, rank, seq, task, workspace, expires_at) SELECT class, -priority, seq, id, workspace, expires_at FROM added
		)
		SELECT id::text FROM added`, id, conn, title, command, digest, classes, priority, retries, spec, expires)
	if err != nil {
		return nil, fmt.Errorf("filling the backlog: %w", err)
	}
	fresh, task := map[string]bool{}, ""
	if _, err := pgx.ForEachRow(rows, []any{&task}, func() error { fresh[task] = true; return nil }); err != nil {
		return nil, fmt.Errorf("filling the backlog: %w", err)
	}
	return fresh, nil
}

// class interns the class of a spawn.
func (in *intake) class(ctx context.Context, conn string, s *commands.Spawn) (int, error) {
	list := slices.Compact(slices.Sorted(slices.Values(s.Capabilities)))
	if list == nil {
		list = []string{}
	}
	return in.db.classes.of(ctx, in.tx, MainWorkspace, classSpec{lane: DefaultLane, kind: AgentKind, capabilities: list, conn: conn, estimate: amounts{}})
}

// knownTask answers a spawn whose task is in the backlog already.
func (in *intake) knownTask(ctx context.Context, i int) error {
	m := in.batch[i]
	task := TaskOf(m.Body)
	raw, err := json.Marshal(m.Body)
	if err != nil {
		return err
	}
	var state commands.State
	var same bool
	err = in.tx.QueryRow(ctx, `SELECT state, conn = $2 AND spec = $3::jsonb FROM tasks JOIN task_bodies ON task = id WHERE id = $1`,
		task, m.Conn, raw).Scan(&state, &same)
	if err != nil {
		return fmt.Errorf("looking up task %s: %w", task, err)
	}
	if !same {
		in.refuse(i, commands.Refuse(commands.TaskConflict, "task %s is here already with other content", task))
		return nil
	}
	in.answer(m, LaneEvt, &commands.Accepted{Task: task, State: state, Known: true, Policy: m.Policy})
	in.note(m, "task.known", "", "")
	return nil
}
