package store

import (
	"context"
	"fmt"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
)

// An OrderedPause is the last word of a hub whether an agent is to stand still, and what its spoke has said to it.
type OrderedPause struct {
	Command string        `json:"command"`
	Number  int64         `json:"number"`
	Paused  bool          `json:"paused"`
	Reason  string        `json:"reason,omitempty"`
	By      string        `json:"by"`
	At      time.Time     `json:"at"`
	State   string        `json:"state"` // see [PauseSent]
	Code    commands.Code `json:"code,omitempty"`
	Why     string        `json:"why,omitempty"` // it was refused
	// Before is the word that it followed and that was not refused, until a spoke has taken it.
	Before *OrderedPause `json:"before,omitempty"`
}

// counts is the newest word that was not refused, has not expired and is not over, as far as is known; nil = none.
func (o *OrderedPause) counts() *OrderedPause {
	switch {
	case o == nil, o.State == PauseTaken, o.State == PauseSent && o.Before == nil:
		return o
	}
	return o.Before
}

// InForce is the last word that a spoke has taken; nil = none.
func (o *OrderedPause) InForce() *OrderedPause {
	if o = o.counts(); o == nil || o.State != PauseTaken {
		return nil
	}
	return o
}

// What may have become of a pause.
const (
	PauseSent    = "sent"    // its spoke has not answered yet
	PauseTaken   = "taken"   // its spoke has it
	PauseRefused = "refused" // it changes nothing
	PauseExpired = "expired" // no spoke has taken it in time; it changes nothing
	PauseOver    = "over"    // it was taken, and its agent went on since by another word, as of its host
)

// OrderPause stores the order that a task stands still, or goes on. An agent that has ended does neither. It returns how the agent stood when
// the order was stored, and the order: its spoke may have taken it since.
func (db *DB) OrderPause(ctx context.Context, p commands.Pause, life time.Duration, actor string) (state commands.State, o *OrderedPause, err error) {
	err = db.Tx(ctx, "ordering the "+p.Word()+" of task "+p.Task, func(ctx context.Context, tx *Tx) error {
		// The connection is held before the mirror, as everywhere.
		if _, err := tx.Exec(ctx, `SELECT FROM connections WHERE id = (SELECT conn FROM mirrors WHERE task = $1) FOR SHARE`, p.Task); err != nil {
			return err
		}
		found, err := holdMirrors(ctx, tx, []string{p.Task})
		if err != nil {
			return err
		}
		m, known := found[p.Task]
		if !known {
			return commands.Refuse(commands.NotFound, "no agent %s", p.Task)
		}
		if err := pausable(p, m.state); err != nil {
			return err
		}
		last, err := lastPause(ctx, tx, p.Task)
		if err != nil {
			return err
		}
		state = m.state
		o, err = sendPause(ctx, tx, m.conn, p, last.counts(), life, actor)
		return err
	})
	return state, o, err
}

// pausable refuses what the spoke would refuse by what is known here.
func pausable(p commands.Pause, s commands.State) error {
	switch {
	case s.Terminal():
		return commands.Refuse(commands.Conflict, "agent %s has ended already: %s", commands.ShortID(p.Task), s).Hinting("see").Running("status", commands.ShortID(p.Task))
	case p.Paused && s != commands.Paused && s != commands.Claimed && !commands.May(s, commands.Paused, commands.ByPause):
		return commands.Refuse(commands.Conflict, "agent %s is %s and cannot be paused", commands.ShortID(p.Task), s).Hinting("pause it once it is queued or running")
	}
	return nil
}

// lastPause is the last order about a task to stand still or to go on; nil = none.
func lastPause(ctx context.Context, tx *Tx, task string) (o *OrderedPause, err error) {
	if err := tx.QueryRow(ctx, `SELECT pause FROM mirrors WHERE task = $1`, task).Scan(&o); err != nil {
		return nil, fmt.Errorf("looking for pauses: %w", err)
	}
	return o, nil
}

// sendPause sends p with the next number, for a mirror that is held. A number follows the clock, so that those after a restore
// from a backup are above those that were given before it.
func sendPause(ctx context.Context, tx *Tx, conn string, p commands.Pause, before *OrderedPause, life time.Duration, actor string) (*OrderedPause, error) {
	o := OrderedPause{Paused: p.Paused, Reason: p.Reason, By: actor, State: PauseSent, Before: before}
	err := tx.QueryRow(ctx, `SELECT greatest(coalesce((pause->>'number')::bigint, 0) + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint), clock_timestamp() FROM mirrors WHERE task = $1`, p.Task).Scan(&o.Number, &o.At)
	if err != nil {
		return nil, fmt.Errorf("numbering a pause: %w", err)
	}
	p.Number = o.Number
	if err := p.Validate(); err != nil {
		return nil, err
	}
	o.Command = tx.Send(Draft{Conn: conn, Body: &p, Life: life})
	tx.Audit(AuditRow{Actor: actor, Action: "task." + p.Word() + "_ordered", Object: p.Task, Why: p.Reason, Conn: conn})
	_, err = tx.Exec(ctx, `UPDATE mirrors SET pause = $2, pause_expires_at = clock_timestamp() + $3::interval, updated_at = clock_timestamp() WHERE task = $1`, p.Task, o, life)
	return &o, err
}

// pauseElsewhere lets orders stand still at the spokes that get them now, which were to at those that refused them: as the last
// word has it that is on its way or in force.
func pauseElsewhere(ctx context.Context, tx *Tx, again []reorder) error {
	for _, r := range again {
		o, err := lastPause(ctx, tx, r.spawn.Task)
		if err != nil {
			return err
		}
		if o != nil && o.State != PauseSent {
			o = o.InForce()
		}
		if o == nil || !o.Paused {
			continue
		}
		if _, err := sendPause(ctx, tx, r.to, commands.Pause{Task: r.spawn.Task, Paused: true, Reason: o.Reason}, nil, r.life, o.By); err != nil {
			return err
		}
	}
	return nil
}

// keepPauses notes what spokes say to pauses, after the mirrors were moved.
func keepPauses(ctx context.Context, tx *Tx, from Standing, batch []*Incoming) error {
	var conns, orders []string
	var said []map[string]any
	for _, m := range batch {
		if m.Effect != commands.PauseKind {
			continue
		}
		conns, orders = append(conns, m.Conn), append(orders, m.Header.Re.ID)
		if b, refused := m.Body.(*commands.RefusedBody); refused {
			said = append(said, noteRefused(b))
		} else {
			said = append(said, map[string]any{"state": PauseTaken})
		}
	}
	if len(orders) == 0 {
		return nil
	}
	if _, err := tx.Exec(ctx, answerPauses, conns, orders, said, string(from.Peer)); err != nil {
		return fmt.Errorf("keeping what became of pauses: %w", err)
	}
	return nil
}

// answerPauses takes answers by column. The mirrors are held in the order of their tasks, as everywhere.
const answerPauses = `
	WITH said AS (
		SELECT o.task, o.conn, jsonb_object_agg(u.command, u.said) AS said FROM unnest($1::uuid[], $2::uuid[], $3::jsonb[]) AS u (conn, command, said)
		JOIN outbox o ON o.id = u.command AND (o.conn = u.conn) IS TRUE GROUP BY 1, 2
	), held AS MATERIALIZED (
		SELECT m.task, m.conn, m.pause AS was, s.said, m.pause || coalesce(s.said -> (m.pause->>'command'), '{}') AS pause, coalesce(s.said -> (m.pause->'before'->>'command'), '{}') AS before
		FROM said s JOIN mirrors m ON m.task = s.task AND (m.conn = s.conn) IS TRUE
		WHERE s.said ?| ARRAY[m.pause->>'command', m.pause->'before'->>'command'] ORDER BY m.task FOR UPDATE OF m
	), audited AS (
		INSERT INTO audit (actor, action, object, code, why, conn)
		SELECT $4, CASE WHEN (p->>'paused')::boolean THEN 'task.pause_refused' ELSE 'task.resume_refused' END, h.task::text, s->>'code', s->>'why', h.conn
		FROM held h, LATERAL (VALUES (h.was), (h.was->'before')) AS words (p), LATERAL (SELECT h.said -> (p->>'command') AS s) AS said WHERE s->>'state' = 'refused' AND p->>'state' IS DISTINCT FROM 'refused'
	)
	UPDATE mirrors m SET updated_at = clock_timestamp(),
		pause_expires_at = CASE WHEN h.pause->>'state' = 'sent' THEN m.pause_expires_at END,
		pause = CASE WHEN h.pause->>'state' = 'taken' THEN h.pause - 'before'
			WHEN h.pause ? 'before' THEN jsonb_set(h.pause, '{before}', h.pause->'before' || h.before) ELSE h.pause END
	FROM held h WHERE m.task = h.task`

// expirePauses notes which pauses no spoke has answered by their last moment, EndBatch of them. What was said before counts
// as it did.
func expirePauses(ctx context.Context, tx *Tx) error {
	_, err := tx.Exec(ctx, `
		WITH late AS MATERIALIZED (
			SELECT task FROM mirrors WHERE pause_expires_at < now() - $1::interval ORDER BY pause_expires_at LIMIT $2 FOR UPDATE SKIP LOCKED
		), expired AS (
			UPDATE mirrors m SET pause = pause || '{"state": "expired"}', pause_expires_at = NULL, updated_at = clock_timestamp() FROM late WHERE m.task = late.task RETURNING m.task, m.conn
		)
		INSERT INTO audit (actor, action, object, code, why, conn) SELECT 'self', 'task.pause_expired', task::text, 'command_expired', 'no answer by the last moment', conn FROM expired`, signing.Skew, EndBatch)
	if err != nil {
		return fmt.Errorf("ending unanswered pauses: %w", err)
	}
	return nil
}
