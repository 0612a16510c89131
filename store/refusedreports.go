package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
)

// RefusedOf returns the newest reports of the peer of conn that are stored here and had no
// effect, by number, and its newest key set where that had none.
func (db *DB) RefusedOf(ctx context.Context, conn string) (list []commands.RefusedReport, err error) {
	err = db.retry(ctx, func(ctx context.Context) error {
		rows, err := db.pool.Query(ctx, `(SELECT seq, code FROM inbox WHERE conn = $1 AND re IS NOT NULL AND code <> '' ORDER BY seq DESC LIMIT $2)
			UNION ALL SELECT seq, code FROM (SELECT seq, code FROM inbox WHERE conn = $1 AND kind = 'peer.keyset' ORDER BY seq DESC LIMIT 1) AS newest WHERE code <> ''
			ORDER BY seq DESC`, conn, commands.MaxRefused-1)
		if err == nil {
			list, err = pgx.CollectRows(rows, pgx.RowToStructByPos[commands.RefusedReport])
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading the refused reports of connection %s: %w", conn, err)
	}
	slices.Reverse(list)
	return list, nil
}

// A RefusedReport is a report of this instance that a peer has refused, as it says.
type RefusedReport struct {
	Kind string    `json:"kind"`
	Seq  int64     `json:"seq"`
	Code string    `json:"code"`
	Hub  string    `json:"hub"`
	At   time.Time `json:"at"` // when it was heard first
}

// NoteRefused notes which reports of this instance the peer has refused. It returns those that
// were not known to be. A number that no message has is none.
func (db *DB) NoteRefused(ctx context.Context, by Speaker, list []commands.RefusedReport) (news []RefusedReport, err error) {
	seqs, codes := make([]int64, len(list)), make([]string, len(list))
	for i, r := range list {
		seqs[i], codes[i] = r.Seq, string(r.Code)
	}
	err = db.Tx(ctx, "noting reports that the peer has refused", func(ctx context.Context, tx *Tx) error {
		if err := tx.Speaks(ctx, by); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, `INSERT INTO refused (conn, seq, kind, code, task)
			SELECT o.conn, o.seq, o.kind, u.code, o.task FROM unnest($2::bigint[], $3::text[]) AS u (seq, code), LATERAL (SELECT * FROM outbox WHERE conn = $1 AND seq = u.seq OFFSET 0) AS o
			ON CONFLICT DO NOTHING RETURNING kind, seq, code, '', at`, by.Conn, seqs, codes)
		if err != nil {
			return err
		}
		news, err = pgx.CollectRows(rows, pgx.RowToStructByPos[RefusedReport])
		return err
	})
	return news, err
}

// RefusedAbout returns the reports about a task that peers have refused.
func (db *DB) RefusedAbout(ctx context.Context, task string) (list []RefusedReport, err error) {
	err = db.retry(ctx, func(ctx context.Context) error {
		rows, err := db.pool.Query(ctx, `SELECT r.kind, r.seq, r.code, c.peer_name, r.at FROM refused r JOIN connections c ON c.id = r.conn WHERE r.task = $1 ORDER BY r.seq LIMIT 100`, task)
		if err == nil {
			list, err = pgx.CollectRows(rows, pgx.RowToStructByPos[RefusedReport])
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading what peers have refused of task %s: %w", task, err)
	}
	return list, nil
}
