package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
)

// BeginIncarnation notes that an instance is started whose data directory has the mark
// next from now on, and had one of the marks left, "" before its first start: more than
// one where it is not known how far the last start came. A database with another mark is
// not as that directory left it: it was restored from a backup. The numbers of its messages then go on above all that may have been
// used since, and the peers that it obeys are asked what it has said. The connections
// are free to be served.
func (db *DB) BeginIncarnation(ctx context.Context, left []string, next string) (restored bool, err error) {
	err = db.Tx(ctx, "beginning an incarnation of the instance", func(ctx context.Context, tx *Tx) error {
		var mark string
		if err := tx.QueryRow(ctx, `SELECT mark FROM instance FOR UPDATE`).Scan(&mark); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `UPDATE instance SET mark = $1`, next); err != nil {
			return err
		}
		// Who served has ended, or it was the one of whom this database is a copy.
		if _, err := tx.Exec(ctx, `DELETE FROM serving`); err != nil {
			return fmt.Errorf("taking over the connections: %w", err)
		}
		if restored = !slices.Contains(left, mark); !restored {
			return nil
		}
		if _, err := tx.Exec(ctx, `SELECT note_restore()`); err != nil {
			return fmt.Errorf("going on above the numbers of events: %w", err)
		}
		if err := disableRestored(ctx, tx); err != nil {
			return err
		}
		if err := pauseSchedules(ctx, tx); err != nil {
			return err
		}
		if err := holdTokens(ctx, tx); err != nil {
			return err
		}
		return goOnAbove(ctx, tx)
	})
	return restored, err
}

// pauseSchedules pauses all of a database that was restored: what is frozen there may not be what was, and what is due was.
func pauseSchedules(ctx context.Context, tx *Tx) error {
	rows, err := tx.Query(ctx, `UPDATE schedules SET state = 'paused', why = $1, restored = true, paused_by = 'self', paused_at = clock_timestamp(), next_due_at = NULL, updated_at = clock_timestamp() WHERE state = 'active' RETURNING name`, Restored)
	if err != nil {
		return fmt.Errorf("pausing the schedules: %w", err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, name := range names {
		tx.Audit(AuditRow{Actor: "self", Action: "schedule.paused", Object: name, Why: Restored})
	}
	return err
}

// NewSince reports whether the database was made after at and no instance has begun
// an incarnation with it.
func (db *DB) NewSince(ctx context.Context, at time.Time) (is bool, err error) {
	err = db.pool.QueryRow(ctx, `SELECT mark = '' AND created_at > $1 FROM instance`, at).Scan(&is)
	return is, err
}

// goOnAbove leaves a gap behind the numbers of every living connection. What is open is
// sealed anew behind it: the peer may have another message under its number, from a life
// after an earlier restore, and would confirm that.
func goOnAbove(ctx context.Context, tx *Tx) error {
	rows, err := tx.Query(ctx, `SELECT conn::text, peer_name, last, kid FROM sequences JOIN connections ON id = conn WHERE NOT has_ended(state) ORDER BY conn FOR UPDATE OF sequences`)
	if err != nil {
		return fmt.Errorf("reading the numbers of connections: %w", err)
	}
	type numbers struct {
		conn string
		name string
		last int64
		kid  signing.KeyID
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (n numbers, err error) {
		return n, row.Scan(&n.conn, &n.name, &n.last, &n.kid)
	})
	if err != nil {
		return fmt.Errorf("reading the numbers of connections: %w", err)
	}
	for _, n := range list {
		base := n.last + jump
		anew, err := tx.db.sealAgain(ctx, tx, n.conn, n.kid, 0, func(i int, _ int64) int64 { return base + int64(i) + 1 })
		if err != nil && !errors.Is(err, signing.ErrMissing) { // what its key has signed stays as it is
			return err
		}
		if err := closeUnused(ctx, tx, n.conn, base); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `UPDATE sequences SET last = $2::bigint + $3, base = $2 WHERE conn = $1`, n.conn, base, anew); err != nil {
			return fmt.Errorf("going on above the numbers that may have been used: %w", err)
		}
		if err := recallAfter(ctx, tx, n.conn, n.last, true); err != nil {
			return err
		}
		if err := forgiveRecalled(ctx, tx, n.conn); err != nil {
			return err
		}
		tx.Audit(AuditRow{Actor: "self", Action: "connection.resync", Object: n.name, Code: string(commands.Resync), Conn: n.conn,
			Why: fmt.Sprintf("the database is not as the data directory left it: it was restored from a backup; message %d is the last one known here, and numbers go on after %d; %d messages that were not confirmed got new ones", n.last, base, anew)})
	}
	return nil
}

// NoteIncarnation notes which incarnation of the peer of conn was heard, and reports
// whether it is one that another had replaced: then two instances speak with the
// peer's key by turns.
func (db *DB) NoteIncarnation(ctx context.Context, conn, incarnation string) (again bool, err error) {
	err = db.Tx(ctx, "noting the incarnation of a peer", func(ctx context.Context, tx *Tx) error {
		return tx.QueryRow(ctx, `UPDATE sequences SET incarnations = CASE WHEN $2 = ANY (incarnations) THEN incarnations ELSE (array_append(incarnations, $2))[greatest(cardinality(incarnations) - 98, 1):] END
			WHERE conn = $1 RETURNING incarnations[cardinality(incarnations)] <> $2`, conn, incarnation).Scan(&again)
	})
	return again, err
}
