package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
)

// TakenIn says what an intake did.
type TakenIn struct {
	Each  []Taken    // per message
	Again []Outgoing // stored answers to messages that came again, to send now; they may be lost
}

// Taken says what an intake did with one message.
type Taken struct {
	Code   signing.Code // "" = acted on
	Why    string
	Queued bool     // a task became ready
	Kill   *KillRun // a running attempt must be ended now
}

// A KillRun is a kill whose task runs: the lease is revoked already, Fence is
// the killer's.
type KillRun struct {
	Fence Fence
	Grace time.Duration
}

// intake is the state of one intake transaction.
type intake struct {
	db     *DB
	tx     pgx.Tx
	batch  []Incoming
	conns  map[string]*connRow
	taken  []Taken
	drafts []draft
	audit  []AuditRow
	closed struct{ conns, ids, digests []string }
	replay struct{ conns, re []string }
}

// Intake stores a batch of commands and the receipts that answer them, in one
// transaction: inbox, backlog, outbox and audit. A message that repeats a known
// one has no effect and its stored answer goes out again; one whose connection
// or key is not in order has no effect at all.
func (db *DB) Intake(ctx context.Context, batch []Incoming) (TakenIn, error) {
	var out TakenIn
	err := db.tx(ctx, "taking in commands", func(ctx context.Context, tx pgx.Tx) error {
		fates, conns, err := guard(ctx, tx, batch)
		if err != nil {
			return err
		}
		in := &intake{db: db, tx: tx, batch: batch, conns: conns, taken: make([]Taken, len(batch))}
		if err := in.act(ctx, fates); err != nil {
			return err
		}
		out.Each = in.taken
		out.Again, err = in.finish(ctx, fates)
		return err
	})
	return out, err
}

func (in *intake) act(ctx context.Context, fates []fate) error {
	var spawns []int
	for i, f := range fates {
		m := in.batch[i]
		if f.code != "" {
			in.refuseQuietly(i, f)
			continue
		}
		if m.Refusal == nil {
			m.Refusal = in.checkGrant(m)
		}
		if m.Refusal != nil {
			in.refuse(i, m.Refusal)
			continue
		}
		switch b := m.Body.(type) {
		case *commands.Spawn:
			spawns = append(spawns, i)
		case *commands.Kill:
			if err := in.kill(ctx, i, b); err != nil {
				return err
			}
		case *commands.Status:
			if err := in.status(ctx, i, b); err != nil {
				return err
			}
		case *commands.Received:
			in.receive(m, b)
		default:
			in.refuse(i, commands.Refuse(signing.HdrField, "a hub does not send %s", m.Header.Kind))
		}
	}
	return in.spawn(ctx, spawns)
}

// refuseQuietly notes a message that must not be answered anew.
func (in *intake) refuseQuietly(i int, f fate) {
	m := in.batch[i]
	in.taken[i] = Taken{Code: f.code, Why: f.why}
	if f.code == signing.ReplaySame {
		in.replay.conns, in.replay.re = append(in.replay.conns, m.Conn), append(in.replay.re, m.Header.ID)
		return
	}
	in.note(m, "message.refused", f.code, f.why)
}

func (in *intake) note(m Incoming, action string, code signing.Code, why string) {
	row := AuditRow{Actor: string(m.Header.Iss), Action: action, Object: TaskOf(m.Body), Code: string(code), Why: why, Message: m.Header.ID}
	if in.conns[m.Conn] != nil {
		row.Conn = m.Conn
	}
	in.audit = append(in.audit, row)
}

// refuse answers message i with no.
func (in *intake) refuse(i int, r *commands.Refused) {
	m := in.batch[i]
	in.taken[i] = Taken{Code: r.Code, Why: r.Why}
	in.note(m, "command.refused", r.Code, r.Why)
	if m.Header.Kind == string(commands.ReceivedKind) {
		return
	}
	in.answer(m, LaneEvt, &commands.RefusedBody{Task: TaskOf(m.Body), Code: r.Code, Why: r.Why, Hint: r.Hint})
}

func (in *intake) answer(m Incoming, lane string, body commands.Body) {
	in.drafts = append(in.drafts, draft{conn: m.Conn, lane: lane, task: TaskOf(body), body: body, life: AnswerLife,
		re: &signing.Ref{ID: m.Header.ID, SHA256: m.Digest.String()}})
}

// checkGrant asks the connection's grant; without one nothing is allowed.
func (in *intake) checkGrant(m Incoming) *commands.Refused {
	g := in.conns[m.Conn].grant
	spawn, isSpawn := m.Body.(*commands.Spawn)
	switch {
	case m.Header.Kind == string(commands.ReceivedKind):
		return nil
	case !g.live:
		return commands.Refuse(commands.Grant, "this connection has no grant, or it has expired")
	case !slices.Contains(g.kinds, m.Header.Kind):
		return commands.Refuse(commands.Grant, "the grant of this connection does not allow %s", m.Header.Kind)
	case isSpawn && !slices.Contains(g.runtimes, spawn.Runtime):
		return commands.Refuse(commands.Grant, "the grant of this connection does not allow runtime %s", spawn.Runtime)
	}
	return nil
}

func (in *intake) receive(m Incoming, b *commands.Received) {
	for _, r := range b.Messages {
		in.closed.conns = append(in.closed.conns, m.Conn)
		in.closed.ids, in.closed.digests = append(in.closed.ids, r.ID), append(in.closed.digests, r.SHA256)
	}
}

func (in *intake) finish(ctx context.Context, fates []fate) ([]Outgoing, error) {
	if err := quarantine(ctx, in.tx, in.batch, fates, "self"); err != nil {
		return nil, err
	}
	again, err := answersTo(ctx, in.tx, in.replay.conns, in.replay.re)
	if err != nil {
		return nil, err
	}
	if err := closeOut(ctx, in.tx, in.closed.conns, in.closed.ids, in.closed.digests); err != nil {
		return nil, err
	}
	if err := insertAudit(ctx, in.tx, in.audit); err != nil {
		return nil, err
	}
	_, err = in.db.put(ctx, in.tx, in.drafts)
	return again, err
}

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
		in.answer(m, LaneEvt, &commands.Accepted{Task: task, State: commands.Queued})
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
	var requires, priority, retries []int
	var digest, spec [][]byte
	var expires []time.Time
	for _, i := range which {
		m := in.batch[i]
		s := m.Body.(*commands.Spawn)
		set, err := requirementSet(ctx, in.tx, s.Capabilities)
		if err != nil {
			return nil, err
		}
		raw, err := json.Marshal(s)
		if err != nil {
			return nil, err
		}
		id, conn, title = append(id, s.Task), append(conn, m.Conn), append(title, s.Title)
		command, digest = append(command, m.Header.ID), append(digest, m.Digest[:])
		requires, priority, retries = append(requires, set), append(priority, s.Priority), append(retries, s.MaxRetries)
		spec, expires = append(spec, raw), append(expires, time.UnixMilli(m.Header.Exp))
	}
	rows, err := in.tx.Query(ctx, `
		WITH new AS (
			SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::uuid[], $5::bytea[], $6::int[], $7::int[], $8::int[], $9::jsonb[], $10::timestamptz[])
				WITH ORDINALITY AS u (id, conn, title, command, digest, requires, priority, retries, spec, expires_at, n)
		), added AS (
			INSERT INTO tasks (id, conn, title, command, command_digest, requires, priority, max_retries, expires_at)
			SELECT id, conn, title, command, digest, requires, priority, retries, expires_at FROM new
			ON CONFLICT (id) DO NOTHING RETURNING id, workspace, lane, command
		), bodies AS (
			INSERT INTO task_bodies (task, spec) SELECT id, spec FROM new JOIN added USING (id, command)
		), agents AS (
			INSERT INTO agents (id, name, runtime) SELECT id, title, spec->>'runtime' FROM new JOIN added USING (id, command)
		), places AS (
			INSERT INTO ready (workspace, lane, requires, rank, task, expires_at)
			SELECT a.workspace, a.lane, n.requires, -n.priority, n.id, n.expires_at FROM new n JOIN added a USING (id, command) ORDER BY n.n
		)
		SELECT id::text FROM added`, id, conn, title, command, digest, requires, priority, retries, spec, expires)
	if err != nil {
		return nil, fmt.Errorf("filling the backlog: %w", err)
	}
	fresh, task := map[string]bool{}, ""
	if _, err := pgx.ForEachRow(rows, []any{&task}, func() error { fresh[task] = true; return nil }); err != nil {
		return nil, fmt.Errorf("filling the backlog: %w", err)
	}
	return fresh, nil
}

// requirementSet interns a capability list; the empty one is 0.
func requirementSet(ctx context.Context, tx pgx.Tx, capabilities []string) (int, error) {
	if len(capabilities) == 0 {
		return 0, nil
	}
	list := slices.Compact(slices.Sorted(slices.Values(capabilities)))
	var id int
	err := tx.QueryRow(ctx, `
		WITH new AS (INSERT INTO requirement_sets (capabilities) VALUES ($1) ON CONFLICT (capabilities) DO NOTHING RETURNING id)
		SELECT id FROM new UNION ALL SELECT id FROM requirement_sets WHERE capabilities = $1 LIMIT 1`, list).Scan(&id)
	if err != nil {
		return 0, fmt.Errorf("interning a capability list: %w", err)
	}
	return id, nil
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
	in.answer(m, LaneEvt, &commands.Accepted{Task: task, State: state, Known: true})
	in.note(m, "task.known", "", "")
	return nil
}

func (in *intake) status(ctx context.Context, i int, b *commands.Status) error {
	m := in.batch[i]
	s := &commands.TaskState{Task: b.Task}
	err := in.tx.QueryRow(ctx, `SELECT state, reason, attempt, (extract(epoch FROM clock_timestamp()) * 1000)::bigint FROM tasks WHERE id = $1 AND conn = $2`,
		b.Task, m.Conn).Scan(&s.State, &s.Reason, &s.Attempt, &s.At)
	if err == pgx.ErrNoRows {
		in.refuse(i, commands.Refuse(commands.UnknownTask, "no task %s of yours here", b.Task))
		return nil
	}
	if err != nil {
		return fmt.Errorf("looking up task %s: %w", b.Task, err)
	}
	in.answer(m, LaneEvt, s)
	in.note(m, "task.asked", "", "")
	return nil
}
