package store

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
)

// An AuditRow is one decision, refusal or change. Rows are only ever added.
type AuditRow struct {
	Seq     int64     `json:"seq"`
	At      time.Time `json:"at"`
	Actor   string    `json:"actor"`
	Action  string    `json:"action"`
	Object  string    `json:"object,omitempty"`
	Code    string    `json:"code,omitempty"`
	Why     string    `json:"why,omitempty"`
	Conn    string    `json:"conn,omitempty"`
	Message string    `json:"message,omitempty"`
}

// queueAudit queues the insertion of rows about a workspace, "" for the
// instance's own.
func queueAudit(b *pgx.Batch, workspace string, rows []AuditRow) {
	if len(rows) == 0 {
		return
	}
	cols := make([][]string, 7)
	for _, r := range rows {
		for i, v := range []string{r.Actor, r.Action, r.Object, r.Code, r.Why, r.Conn, r.Message} {
			cols[i] = append(cols[i], v)
		}
	}
	b.Queue(`
		INSERT INTO audit (actor, action, object, code, why, conn, message, workspace)
		SELECT a, b, c, d, e, nullif(f, '')::uuid, nullif(g, '')::uuid, $8
		FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[]) AS u (a, b, c, d, e, f, g)`,
		cols[0], cols[1], cols[2], cols[3], cols[4], cols[5], cols[6], workspace)
}

// Audit adds one row of its own: for what has no other effect to share a
// transaction with, such as a message that was refused.
func (db *DB) Audit(ctx context.Context, rows ...AuditRow) error {
	return db.Tx(ctx, "auditing", func(ctx context.Context, tx *Tx) error { tx.Audit(rows...); return nil })
}

const auditColumns = `seq, at, actor, action, object, code, why, coalesce(conn::text, ''), coalesce(message::text, '')`

// auditOf finds rows by their object, and those of acts on many tasks at once,
// which are about a claim or a creation. These come first, as text: a policy lets an index
// compare text with text, but nothing that is made of a row's id. And nothing asks
// for an order before the rows are found: an index in that order has all objects.
const auditOf = `WITH objects AS MATERIALIZED (
		SELECT $1::text AS object UNION SELECT claim::text FROM attempts WHERE task = $2 UNION SELECT created_with::text FROM tasks WHERE id = $2
	), about AS MATERIALIZED (
		SELECT s.* FROM objects o JOIN audit s ON s.object = o.object WHERE s.object = $1 OR $2 = ANY (s.tasks)
	)
	SELECT ` + auditColumns + ` FROM (SELECT * FROM about WHERE seq < $4 ORDER BY seq DESC LIMIT $3) AS newest ORDER BY seq`

const auditOfAll = `SELECT ` + auditColumns + ` FROM (SELECT * FROM audit WHERE seq < $2 ORDER BY seq DESC LIMIT $1) AS newest ORDER BY seq`

// auditHere has the order of the index of a workspace, and of no other one.
const auditHere = `SELECT ` + auditColumns + ` FROM (SELECT * FROM audit WHERE back > -$2::bigint ORDER BY back LIMIT $1) AS newest ORDER BY seq`

// auditedTasks are tasks by the end of their ids, newest first, as the audit first names them; none where something
// else has the name. The actions are those of the index.
const auditedTasks = `SELECT object FROM audit WHERE action IN ('command.refused', 'task.ordered', 'task.queued') AND right(object, 10) COLLATE "C" BETWEEN $2 AND $3
	AND length(object) = 36 AND NOT EXISTS (SELECT FROM audit WHERE object = $1) GROUP BY object ORDER BY object DESC LIMIT 20`

// AuditTrail returns the newest limit rows in order, those about object or, when that is empty, of all; where before
// is not 0, of the rows with lower numbers. Acts on many tasks at once are found under each. A task is found by its
// short id, too, also when the audit alone still has it.
func (db *DB) AuditTrail(ctx context.Context, object string, before int64, limit int) ([]AuditRow, error) {
	object, err := db.audited(ctx, object)
	if err != nil {
		return nil, err
	}
	return readAudit(ctx, db.pool, auditOfAll, object, before, limit)
}

// AuditHere is [DB.AuditTrail] of the workspace that a transaction works in, of a whole id.
func AuditHere(ctx context.Context, tx *Tx, object string, before int64, limit int) ([]AuditRow, error) {
	return readAudit(ctx, tx, auditHere, object, before, limit)
}

// audited is the id of the task whose short id text is, or begins; else it is text.
func (db *DB) audited(ctx context.Context, text string) (string, error) {
	ids, ok := commands.NamedIDs(text)
	if !ok || !ids.Tail {
		return text, nil
	}
	rows, err := db.pool.Query(ctx, auditedTasks, text, ids.Low, ids.High)
	if err != nil {
		return "", fmt.Errorf("reading the audit: %w", err)
	}
	tasks, err := pgx.CollectRows(rows, pgx.RowTo[string])
	switch {
	case err != nil:
		return "", fmt.Errorf("reading the audit: %w", err)
	case len(tasks) > 1:
		return "", commands.Several(text, "tasks", tasks)
	case len(tasks) == 1:
		return tasks[0], nil
	}
	return text, nil
}

func readAudit(ctx context.Context, q interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}, all, object string, before int64, limit int) ([]AuditRow, error) {
	if before == 0 {
		before = math.MaxInt64
	}
	sql, args := all, []any{limit, before}
	if object != "" {
		var task *uuid.UUID // nil: it names no task
		if id, err := uuid.Parse(object); err == nil {
			task = &id
		}
		sql, args = auditOf, []any{object, task, limit, before}
	}
	rows, err := q.Query(ctx, sql, args...)
	if err != nil {
		return nil, fmt.Errorf("reading the audit: %w", err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r AuditRow, err error) {
		return r, row.Scan(&r.Seq, &r.At, &r.Actor, &r.Action, &r.Object, &r.Code, &r.Why, &r.Conn, &r.Message)
	})
	if err != nil {
		return nil, fmt.Errorf("reading the audit: %w", err)
	}
	return list, nil
}
