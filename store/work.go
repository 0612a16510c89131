package store

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A work is a transaction that costs no round trip of its own to begin: its
// opening statements travel with the first one of the caller. What is not
// overridden here is not used by this package.
type work struct {
	pgx.Tx
	conn      *pgxpool.Conn
	opening   []*pgx.QueuedQuery
	committed bool // the commit went out with the last batch
}

func newWork(conn *pgxpool.Conn, workspace string) *work {
	var b pgx.Batch
	b.Queue("begin")
	if workspace != "" {
		// Both settings end with the transaction, so a pooled connection carries
		// neither on.
		b.Queue(`SELECT set_config('role', 'spawnmesh_app', true), set_config('spawnmesh.workspace', $1, true)`, workspace)
	}
	return &work{conn: conn, opening: b.QueuedQueries}
}

// SendBatch sends b, behind the opening when nothing was sent yet.
func (w *work) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	opening := w.opening
	if opening == nil {
		return w.conn.SendBatch(ctx, b)
	}
	w.opening = nil
	all := &pgx.Batch{QueuedQueries: append(opening, b.QueuedQueries...)}
	results := w.conn.SendBatch(ctx, all)
	for range opening {
		if _, err := results.Exec(); err != nil {
			break // every later read returns it too
		}
	}
	return results
}

// SendLast sends b with the commit behind it. Nothing may follow.
func (w *work) SendLast(ctx context.Context, b *pgx.Batch) error {
	b.Queue("commit")
	if err := w.SendBatch(ctx, b).Close(); err != nil {
		return err
	}
	w.committed = true
	return nil
}

// Exec runs one statement.
func (w *work) Exec(ctx context.Context, sql string, args ...any) (tag pgconn.CommandTag, err error) {
	if w.opening == nil {
		return w.conn.Exec(ctx, sql, args...)
	}
	var b pgx.Batch
	b.Queue(sql, args...).Exec(func(t pgconn.CommandTag) error { tag = t; return nil })
	err = w.SendBatch(ctx, &b).Close()
	return tag, err
}

// Query runs one statement that returns rows.
func (w *work) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if w.opening == nil {
		return w.conn.Query(ctx, sql, args...)
	}
	var b pgx.Batch
	b.Queue(sql, args...)
	results := w.SendBatch(ctx, &b)
	rows, err := results.Query()
	if err != nil {
		return rows, errors.Join(err, results.Close())
	}
	return &firstRows{Rows: rows, results: results}, nil
}

// QueryRow runs one statement that returns a row.
func (w *work) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if w.opening == nil {
		return w.conn.QueryRow(ctx, sql, args...)
	}
	rows, err := w.Query(ctx, sql, args...)
	return firstRow{rows, err}
}

// firstRows are the rows of a first statement: closing them ends the batch that
// it travelled in.
type firstRows struct {
	pgx.Rows
	results pgx.BatchResults
}

func (r *firstRows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	r.Close()
	return false
}

func (r *firstRows) Close() {
	r.Rows.Close()
	_ = r.results.Close() // an error is the rows' own, and they return it
}

type firstRow struct {
	rows pgx.Rows
	err  error
}

func (r firstRow) Scan(dest ...any) error {
	if r.err != nil {
		return r.err
	}
	defer r.rows.Close()
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return err
		}
		return pgx.ErrNoRows
	}
	if err := r.rows.Scan(dest...); err != nil {
		return err
	}
	r.rows.Close()
	return r.rows.Err()
}

// end commits, or rolls back after err. A connection in doubt is given up.
func (w *work) end(ctx context.Context, err error) error {
	if err == nil && !w.committed && w.opening == nil {
		var tag pgconn.CommandTag
		if tag, err = w.conn.Exec(ctx, "commit"); err == nil && tag.String() == "ROLLBACK" {
			err = pgx.ErrTxCommitRollback
		}
	}
	if w.conn.Conn().PgConn().TxStatus() != 'I' && !w.conn.Conn().IsClosed() {
		if _, again := w.conn.Exec(context.WithoutCancel(ctx), "rollback"); again != nil {
			_ = w.conn.Conn().Close(context.WithoutCancel(ctx))
		}
	}
	return err
}
