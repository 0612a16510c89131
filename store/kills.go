package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
)

// A KillOrdered says what became of the order to kill a task. Without an error it was sent, or the task had
// ended already.
type KillOrdered struct {
	Task  string
	Spoke string
	Sent  bool
	Err   *commands.Refused
}

// OrderKill stores a kill order for a task. A task that has ended already gets
// none: its mirror is the answer. One that this hub has ended by itself may run on its spoke, and gets one.
func (db *DB) OrderKill(ctx context.Context, k commands.Kill, life time.Duration, actor string) (sent bool, err error) {
	list, err := db.orderKills(ctx, "ordering the kill of task "+k.Task, []string{k.Task}, k, life, actor)
	if err != nil {
		return false, err
	}
	if list[0].Err != nil {
		return false, list[0].Err
	}
	return list[0].Sent, nil
}

// OrderKills is OrderKill for some tasks in one transaction, each with an order of its own.
func (db *DB) OrderKills(ctx context.Context, tasks []string, k commands.Kill, life time.Duration, actor string) ([]KillOrdered, error) {
	return db.orderKills(ctx, fmt.Sprintf("ordering %d kills", len(tasks)), tasks, k, life, actor)
}

func (db *DB) orderKills(ctx context.Context, what string, tasks []string, k commands.Kill, life time.Duration, actor string) (out []KillOrdered, err error) {
	err = db.Tx(ctx, what, func(ctx context.Context, tx *Tx) (err error) {
		// The connections are held before the mirrors, as everywhere.
		if _, err := tx.Exec(ctx, `SELECT FROM connections WHERE id IN (SELECT conn FROM mirrors WHERE task = ANY ($1::uuid[])) ORDER BY id FOR SHARE`, tasks); err != nil {
			return err
		}
		out, err = killIn(ctx, tx, tasks, k, life, actor)
		return err
	})
	return out, err
}

// killIn is OrderKills within a transaction that holds the connections.
func killIn(ctx context.Context, tx *Tx, tasks []string, k commands.Kill, life time.Duration, actor string) ([]KillOrdered, error) {
	found, err := holdMirrors(ctx, tx, tasks)
	if err != nil {
		return nil, err
	}
	out := make([]KillOrdered, len(tasks))
	var ids []string
	var kills []map[string]any
	for i, task := range tasks {
		m, known := found[task]
		out[i] = KillOrdered{Task: task, Spoke: m.spoke, Sent: known && (!m.state.Terminal() || m.unheard)}
		if !known {
			out[i].Err = commands.Refuse(commands.NotFound, "no agent %s", task)
		}
		if !out[i].Sent {
			continue
		}
		k.Task = task
		body := k
		command := tx.Send(Draft{Conn: m.conn, Body: &body, Life: life})
		tx.Audit(AuditRow{Actor: actor, Action: "task." + k.Word() + "_ordered", Object: task, Why: k.Reason, Conn: m.conn})
		ids, kills = append(ids, task), append(kills, noteOf(k, command, actor))
	}
	if len(ids) == 0 {
		return out, nil
	}
	_, err = tx.Exec(ctx, `UPDATE mirrors m SET kill = CASE WHEN jsonb_array_length(m.kill) < 100 THEN m.kill || u.kill WHEN m.kill IS NULL OR NOT end_ordered(m.kill) THEN jsonb_build_array(u.kill) ELSE m.kill END,
		kill_expires_at = CASE WHEN $4 THEN m.kill_expires_at ELSE clock_timestamp() + $3::interval END, updated_at = clock_timestamp() FROM unnest($1::uuid[], $2::jsonb[]) AS u (task, kill) WHERE m.task = u.task`, ids, kills, life, k.Cancel == commands.CancelAfter) // what may finish has no last moment
	return out, err
}

// An OrderedKill is an order of a hub to end an agent, as its mirror keeps it.
type OrderedKill struct {
	commands.Kill
	Command string        `json:"command"`
	By      string        `json:"by"`
	At      *time.Time    `json:"at"`             // nil: a host's own
	Code    commands.Code `json:"code,omitempty"` // its spoke refused it, and
	Why     string        `json:"why,omitempty"`
}

// ReadKill reads what a mirror keeps of a kill; nil = it keeps none.
func ReadKill(kept json.RawMessage) *OrderedKill {
	var k OrderedKill
	if kept == nil || json.Unmarshal(kept, &k) != nil {
		return nil
	}
	return &k
}

// noteOf is what a mirror keeps of a kill.
func noteOf(k commands.Kill, command, actor string) map[string]any {
	note := map[string]any{"command": command, "reason": k.Reason, "grace_ms": k.GraceMS, "by": actor, "at": time.Now().UTC()}
	if k.Cancel != "" {
		note["cancel"] = k.Cancel
	}
	return note
}

// keepKills notes which kills and cancels spokes refuse: such an order ends nothing, and may be given again.
func keepKills(ctx context.Context, tx *Tx, from Standing, batch []*Incoming) error {
	var orders []string
	var said []map[string]any
	for _, m := range batch {
		if b, refused := m.Body.(*commands.RefusedBody); refused && m.Effect == commands.KillKind {
			orders, said = append(orders, m.Header.Re.ID), append(said, noteRefused(b))
		}
	}
	if len(orders) == 0 {
		return nil
	}
	if _, err := tx.Exec(ctx, refuseKills, from.ID, string(from.Peer), orders, said); err != nil {
		return fmt.Errorf("keeping which kills were refused: %w", err)
	}
	return nil
}

// noteRefused is what is kept with an order that b refuses.
func noteRefused(b *commands.RefusedBody) map[string]any {
	return map[string]any{"state": "refused", "code": b.Code, "why": commands.CleanReason(b.Why)}
}

// refuseKills takes refusals by column. The mirrors are held in the order of their tasks, as everywhere.
const refuseKills = `
	WITH said AS (
		SELECT o.task, jsonb_object_agg(u.command, u.said) AS said FROM unnest($3::uuid[], $4::jsonb[]) AS u (command, said)
		JOIN outbox o ON o.id = u.command AND (o.conn = $1) IS TRUE GROUP BY 1
	), held AS MATERIALIZED (
		SELECT m.task, m.kill AS was, s.said, (SELECT jsonb_agg(k || coalesce(s.said -> (k->>'command'), '{}') ORDER BY n) FROM jsonb_array_elements(m.kill) WITH ORDINALITY AS e (k, n)) AS kill
		FROM said s JOIN mirrors m ON m.task = s.task AND (m.conn = $1) IS TRUE WHERE m.kill IS NOT NULL ORDER BY m.task FOR UPDATE OF m
	), audited AS (
		INSERT INTO audit (actor, action, object, code, why, conn)
		SELECT $2, CASE WHEN k ? 'cancel' THEN 'task.cancel_refused' ELSE 'task.kill_refused' END, h.task::text, s->>'code', s->>'why', $1
		FROM held h, jsonb_array_elements(h.was) AS k, LATERAL (SELECT h.said -> (k->>'command') AS s) AS s WHERE s IS NOT NULL AND NOT k ? 'state'
	)
	UPDATE mirrors m SET kill = h.kill, kill_expires_at = CASE WHEN end_limited(h.kill) THEN m.kill_expires_at END, updated_at = clock_timestamp()
	FROM held h WHERE m.task = h.task`

// A held mirror stays as it is until the transaction ends.
type held struct {
	conn, spoke string
	state       commands.State
	unheard     bool // as [Mirror] has it
}

func holdMirrors(ctx context.Context, tx *Tx, tasks []string) (map[string]held, error) {
	rows, err := tx.Query(ctx, `SELECT m.task::text, m.conn::text, c.peer_name, m.state, `+unheardHere+` AND NOT has_ended(c.state) FROM mirrors m JOIN connections c ON c.id = m.conn
		WHERE m.task = ANY ($1::uuid[]) ORDER BY m.task FOR UPDATE OF m`, tasks)
	if err != nil {
		return nil, err
	}
	found, task, m := map[string]held{}, "", held{}
	_, err = pgx.ForEachRow(rows, []any{&task, &m.conn, &m.spoke, &m.state, &m.unheard}, func() error { found[task] = m; return nil })
	return found, err
}

// Killable returns the tasks of t that have not ended and that nobody has killed, all of them: a kill wins over a cancel, and
// one that was refused is none.
func (db *DB) Killable(ctx context.Context, t MirrorTerms) (tasks []string, err error) {
	args := labelArgs(t.Labels)
	which := `ended_at IS NULL AND NOT kill_ordered(kill) AND ` + fits(1)
	from := `mirrors`
	if t.Spoke != "" {
		args = append(args, t.Spoke)
		from = fmt.Sprintf(`(SELECT m.* FROM connections k JOIN mirrors m ON m.conn = k.id WHERE k.peer_name = $%d) AS m`, len(args))
	}
	err = db.retry(ctx, func(ctx context.Context) error {
		rows, err := db.pool.Query(ctx, `SELECT task::text FROM `+from+` WHERE `+which+` ORDER BY task`, args...)
		if err == nil {
			tasks, err = pgx.CollectRows(rows, pgx.RowTo[string])
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("looking for agents to kill: %w", err)
	}
	return tasks, nil
}

// KillsOver says of those of tasks that this hub has ordered whether nothing is left to kill: it has ended, or somebody has killed it.
func (db *DB) KillsOver(ctx context.Context, tasks []string) (over map[string]bool, err error) {
	task, is := "", false
	err = db.retry(ctx, func(ctx context.Context) error {
		rows, err := db.pool.Query(ctx, `SELECT task::text, ended_at IS NOT NULL OR kill_ordered(kill) FROM mirrors WHERE task = ANY ($1::uuid[])`, tasks)
		if err != nil {
			return err
		}
		over = make(map[string]bool, len(tasks))
		_, err = pgx.ForEachRow(rows, []any{&task, &is}, func() error { over[task] = is; return nil })
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("looking for agents that have ended: %w", err)
	}
	return over, nil
}
