package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
)

// An instance that was restored from a backup does not know what it has said since,
// and asks the peer. One that commands takes its orders over. One that obeys learns
// what it has said about tasks; until then nothing that the peer had asked for is
// claimed: it may have run. What holds it back is a freeze of the connection, so
// a person can see it, and lift it.

// heldBy is who set that freeze.
const heldBy = "restore"

// recallAfter has the peer asked what it was told after number last, and holds
// back what it had asked for. With now this is the restore; else one that a comparison has found,
// which is a new one where the peer is not asked already.
func recallAfter(ctx context.Context, tx *Tx, conn string, last int64, now bool) error {
	_, err := tx.Exec(ctx, `UPDATE sequences SET recall_from = CASE recall_from WHEN 0 THEN $2 ELSE least(recall_from, $2) END,
		restored_at = CASE WHEN $3 OR recall_from = 0 THEN clock_timestamp() ELSE restored_at END WHERE conn = $1`, conn, last+1, now)
	if err != nil {
		return fmt.Errorf("noting that the peer is to be asked: %w", err)
	}
	_, err = tx.Exec(ctx, `INSERT INTO freezes (workspace, scope, target, reason, actor)
		SELECT $2, 'connection', id::text, 'restored from a backup: this may have run; it waits until ' || peer_name || ' has said what became of it', $3
		FROM connections WHERE id = $1 AND authority = 'obeys' ON CONFLICT DO NOTHING`, conn, Workspace, heldBy)
	if err != nil {
		return fmt.Errorf("holding back what may have run: %w", err)
	}
	return nil
}

// RestoredAt is when this database was restored, where the peer of a connection was asked about it and has not answered to
// the end; zero = nobody was.
func (tx *Tx) RestoredAt(ctx context.Context, conn string) (at time.Time, err error) {
	err = tx.QueryRow(ctx, `SELECT restored_at FROM sequences WHERE conn = $1 AND recall_from > 0 AND restored_at IS NOT NULL`, conn).Scan(&at)
	if err != nil && err != pgx.ErrNoRows {
		return at, fmt.Errorf("looking for the restore of this database: %w", err)
	}
	return at, nil
}

// recalled returns what the peer is to be told of its messages from number from on.
func (db *DB) recalled(ctx context.Context, conn string, from int64) (*commands.Recalled, error) {
	var obeys bool
	if err := db.pool.QueryRow(ctx, `SELECT authority = 'obeys' FROM connections WHERE id = $1`, conn).Scan(&obeys); err != nil {
		return nil, fmt.Errorf("reading who commands: %w", err)
	}
	if obeys {
		return db.ordersSince(ctx, conn, from)
	}
	return db.saidSince(ctx, conn, from)
}

// orderPage is how many bytes of orders a heartbeat recalls, unless one alone is
// larger. A heartbeat has room for one of largestOrder: it is base64 twice.
const orderPage, largestOrder = 32 << 10, 48 << 10

// ordersSince returns the spawn messages of the peer from number from on that were not
// refused: those may be given again, and are answered as new ones. One
// that is too large for a heartbeat is left out: its reports stay in the peer's
// inbox as those of an unknown order.
func (db *DB) ordersSince(ctx context.Context, conn string, from int64) (*commands.Recalled, error) {
	out := &commands.Recalled{From: from, Through: from - 1}
	rows, err := db.pool.Query(ctx, `SELECT seq, CASE WHEN length(envelope) BETWEEN 1 AND $4 THEN envelope END FROM inbox
		WHERE conn = $1 AND seq >= $2 AND kind = $3 AND code = '' ORDER BY seq LIMIT $5`,
		conn, from, commands.SpawnKind, largestOrder, commands.MaxRecalled)
	if err != nil {
		return nil, fmt.Errorf("reading the peer's orders: %w", err)
	}
	defer rows.Close()
	var seq int64
	var envelope []byte
	n, size := 0, 0
	for ; rows.Next(); n++ {
		if err := rows.Scan(&seq, &envelope); err != nil {
			return nil, fmt.Errorf("reading the peer's orders: %w", err)
		}
		if size += len(envelope); size > orderPage && len(out.Orders) > 0 {
			return out, nil
		}
		if out.Through = seq; envelope != nil {
			out.Orders = append(out.Orders, envelope)
		}
	}
	out.Done = n < commands.MaxRecalled
	return out, rows.Err()
}

// saidSince returns how those tasks stand that the peer has told of in its messages
// from number from on. One whose attempt has started, and not ended as far as is known, runs:
// that it is queued is what a peer says that was restored before. A word on its pause that was
// not taken yet is newer than what was told.
func (db *DB) saidSince(ctx context.Context, conn string, from int64) (*commands.Recalled, error) {
	out := &commands.Recalled{From: from, Through: from - 1}
	var n int
	var tasks []string
	err := db.pool.QueryRow(ctx, `SELECT count(*), coalesce(max(seq), $2 - 1), coalesce(array_agg(DISTINCT task::text), '{}')
		FROM (SELECT seq, task FROM inbox WHERE conn = $1 AND seq >= $2 AND task IS NOT NULL ORDER BY seq LIMIT $3) AS said`, conn, from, commands.MaxRecalled).
		Scan(&n, &out.Through, &tasks)
	if err != nil {
		return nil, fmt.Errorf("reading what the peer has said: %w", err)
	}
	out.Done = n < commands.MaxRecalled
	rows, err := db.pool.Query(ctx, `
		SELECT m.task::text, m.command::text, encode(m.command_digest, 'hex'), m.attempt,
			CASE WHEN m.state = 'queued' AND m.attempt > 0 AND NOT over.it THEN 'running' ELSE m.state END, m.reason, coalesce(m.result->>'outcome', ''),
			coalesce((m.result->'exit'->>'code')::int, -1), coalesce((extract(epoch FROM coalesce(m.ended_said, m.ended_at)) * 1000)::bigint, 0), o.id IS NOT NULL,
			over.it, greatest(0, (m.pause->>'number')::bigint - CASE m.pause->>'state' WHEN $3 THEN 2 ELSE 0 END)
		FROM mirrors m LEFT JOIN outbox o ON o.id = m.command AND o.exp > clock_timestamp() AND NOT (SELECT c.numbers @> o.seq FROM confirmed c WHERE c.conn = o.conn),
			LATERAL (SELECT m.attempts @> jsonb_build_array(jsonb_build_object('attempt', m.attempt)) OR NOT is_terminal(m.state) AND coalesce((m.result->>'attempt')::int = m.attempt, false) AS it) AS over
		WHERE m.task = ANY ($2::uuid[]) AND m.conn = $1 ORDER BY m.task`, conn, tasks, PauseSent)
	if err != nil {
		return nil, fmt.Errorf("reading the standing of the peer's tasks: %w", err)
	}
	out.Tasks, err = pgx.CollectRows(rows, pgx.RowToStructByPos[commands.TaskStanding])
	return out, err
}

// Recall takes in what the peer recalls of this instance's own words, and reports whether it was. act is
// called inside the transaction; it may run again after an outage. What was not
// asked for, was taken in before, or comes over a connection that has ended
// meanwhile, changes nothing. What this instance never said is VALIDATION.
func (db *DB) Recall(ctx context.Context, by Speaker, r *commands.Recalled, act func(context.Context, *Tx) error) (taken bool, err error) {
	conn := by.Conn
	err = db.Tx(ctx, "taking in what the peer recalls", func(ctx context.Context, tx *Tx) error {
		taken = false
		// The lock keeps away reports, which would find no mirror and not be sent again, and
		// an end of the connection, which has to find the mirrors that it ends.
		if _, err := tx.Exec(ctx, lockForNumbers, conn); err != nil {
			return err
		}
		if err := tx.Speaks(ctx, by); err != nil {
			return err
		}
		var from, last int64
		var name string
		err := tx.QueryRow(ctx, `SELECT CASE WHEN has_ended(c.state) THEN 0 ELSE s.recall_from END, s.last, c.peer_name
			FROM sequences s JOIN connections c ON c.id = s.conn WHERE s.conn = $1`, conn).Scan(&from, &last, &name)
		if err != nil || from == 0 || from != r.From {
			return err
		}
		if r.Through > last {
			return commands.Refuse(commands.Validation, "what is recalled reaches to message %d, and the last one of this instance is %d", r.Through, last)
		}
		next := r.Through + 1
		if r.Done { // before act, which locks tasks and numbers: an end of a connection takes its freeze first, too
			next = 0
			if err := settle(ctx, tx, conn, name, "the peer has said what became of its work"); err != nil {
				return err
			}
		}
		if err := act(ctx, tx); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, `UPDATE sequences SET recall_from = $3 WHERE conn = $1 AND recall_from = $2`, conn, from, next)
		if err == nil && tag.RowsAffected() == 0 {
			err = fmt.Errorf("the peer was asked for something else meanwhile")
		}
		taken = err == nil
		return err
	})
	return taken && err == nil, err
}

// How many tasks a peer that commands may name that are not known here, after one restore: each takes rows, and those that are told to
// it as lost a signed message each. What it has really asked for since the backup is less, but on a host that has run a million agents since.
const maxUnknown, maxLost = 1_000_000, 10_000

// A TooManyRecalled is that a peer has named more tasks than may be. Nothing of the page that did so was taken in.
type TooManyRecalled struct {
	what string
	most int
}

func (e *TooManyRecalled) Error() string {
	return fmt.Sprintf("this instance was restored from a backup, and the peer has named more than %d tasks since that are not known here%s", e.most, e.what)
}

// CountRecalled counts, inside a [DB.Recall], how many tasks a page names that are not known here, and how many of them are told to the
// peer as lost.
func (tx *Tx) CountRecalled(ctx context.Context, conn string, unknown, lost int) error {
	if unknown == 0 {
		return nil
	}
	err := tx.QueryRow(ctx, `UPDATE sequences SET recalled_unknown = recalled_unknown + $2, recalled_lost = recalled_lost + $3 WHERE conn = $1 RETURNING recalled_unknown, recalled_lost`,
		conn, unknown, lost).Scan(&unknown, &lost)
	switch {
	case err != nil:
		return fmt.Errorf("counting tasks that were recalled and are not known: %w", err)
	case lost > maxLost:
		return &TooManyRecalled{", and have not ended", maxLost}
	case unknown > maxUnknown:
		return &TooManyRecalled{"", maxUnknown}
	}
	return nil
}

// forgiveRecalled lets a peer name as many once more.
func forgiveRecalled(ctx context.Context, tx *Tx, conn string) error {
	_, err := tx.Exec(ctx, `UPDATE sequences SET recalled_unknown = 0, recalled_lost = 0 WHERE conn = $1 AND recalled_unknown > 0`, conn)
	if err != nil {
		return fmt.Errorf("letting the peer name more tasks: %w", err)
	}
	return nil
}

// settle lets what was held back go on.
func settle(ctx context.Context, tx *Tx, conn, name, why string) error {
	if err := noMoreHeld(ctx, tx, conn); err != nil {
		return err
	}
	tx.Audit(AuditRow{Actor: "peer", Action: "connection.recalled", Object: name, Code: string(commands.Resync), Conn: conn, Why: why})
	return nil
}

// noMoreHeld lifts what held back the orders of a connection.
func noMoreHeld(ctx context.Context, tx *Tx, conn string) error {
	_, err := tx.Exec(ctx, `DELETE FROM freezes WHERE workspace = $2 AND scope = 'connection' AND target = $1::uuid::text AND actor = $3`, conn, Workspace, heldBy)
	if err != nil {
		return fmt.Errorf("letting go on what was held back: %w", err)
	}
	return nil
}
