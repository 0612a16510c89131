package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
)

// A FullInbox is one that keeps no more messages of a peer.
type FullInbox struct {
	Conn  string
	Since time.Time
	Room  bool // there is room again: for more than the next message, so that it does not change with each
}

// FullInboxes returns those of connections that have not ended.
func (db *DB) FullInboxes(ctx context.Context) ([]FullInbox, error) {
	rows, bytes := db.inbox.now().rows(), db.inbox.now().bytes()
	found, err := db.pool.Query(ctx, `SELECT s.conn::text, s.full_since, s.kept_rows < $1 AND s.kept_bytes < $2 AND NOT $3 FROM sequences s JOIN connections c ON c.id = s.conn
		WHERE s.full_since IS NOT NULL AND NOT has_ended(c.state)`, rows-rows/urgent, bytes-bytes/urgent, db.inbox.crowded.Load())
	if err != nil {
		return nil, fmt.Errorf("looking for full inboxes: %w", err)
	}
	list, err := pgx.CollectRows(found, pgx.RowToStructByPos[FullInbox])
	if err != nil {
		return nil, fmt.Errorf("looking for full inboxes: %w", err)
	}
	return list, nil
}

// NoteFull notes and audits that no more messages of the peer of conn are kept, and returns
// since when. It stays noted when this process ends.
func (db *DB) NoteFull(ctx context.Context, conn string) (since time.Time, err error) {
	err = db.Tx(ctx, "noting that an inbox is full", func(ctx context.Context, tx *Tx) error {
		var name string
		var first bool
		err := tx.QueryRow(ctx, `WITH was AS (SELECT full_since FROM sequences WHERE conn = $1 FOR NO KEY UPDATE)
			UPDATE sequences s SET full_since = coalesce(was.full_since, clock_timestamp()) FROM was, connections c
			WHERE s.conn = $1 AND c.id = s.conn RETURNING s.full_since, was.full_since IS NULL, c.peer_name`, conn).Scan(&since, &first, &name)
		if err == nil && first {
			tx.Audit(AuditRow{Actor: "self", Action: "connection.full", Object: name, Conn: conn, Code: string(commands.Full),
				Why: "no more messages of the peer are kept here until there is room; they wait on its side"})
		}
		return err
	})
	return since, err
}

// NoteRoom notes and audits that messages of the peer of conn are kept again.
func (db *DB) NoteRoom(ctx context.Context, conn string) error {
	return db.Tx(ctx, "noting that an inbox has room", func(ctx context.Context, tx *Tx) error {
		var name string
		err := tx.QueryRow(ctx, `UPDATE sequences s SET full_since = NULL FROM connections c
			WHERE s.conn = $1 AND s.full_since IS NOT NULL AND c.id = s.conn RETURNING c.peer_name`, conn).Scan(&name)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err == nil {
			tx.Audit(AuditRow{Actor: "self", Action: "connection.room", Object: name, Conn: conn, Why: "messages of the peer are kept again"})
		}
		return err
	})
}
