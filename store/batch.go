package store

import (
	"cmp"
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Queue adds a statement that nobody waits for yet: it travels in front of what is
// sent next, the commit at the latest. Its answer is read then, by the function that
// it is given.
func (tx *Tx) Queue(sql string, args ...any) *pgx.QueuedQuery { return tx.queued.Queue(sql, args...) }

// QueueBatch queues all statements of b.
func (tx *Tx) QueueBatch(b *pgx.Batch) {
	tx.queued.QueuedQueries = append(tx.queued.QueuedQueries, b.QueuedQueries...)
}

// Flush sends what is queued, and reads the answers.
func (tx *Tx) Flush(ctx context.Context) error {
	tx.queueReserved()
	if tx.queued.Len() == 0 {
		return nil
	}
	return tx.SendBatch(ctx, &pgx.Batch{}).Close()
}

// SendBatch sends b, behind what is queued, and that behind the opening when nothing
// was sent yet.
func (tx *Tx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if !tx.waits() {
		return tx.conn.SendBatch(ctx, b)
	}
	all := &pgx.Batch{}
	if tx.unsent {
		all = tx.open()
	}
	all.QueuedQueries = append(all.QueuedQueries, tx.queued.QueuedQueries...)
	tx.unsent, tx.queued = false, pgx.Batch{}
	ahead := all.Len()
	all.QueuedQueries = append(all.QueuedQueries, b.QueuedQueries...)
	results := tx.conn.SendBatch(ctx, all)
	for _, q := range all.QueuedQueries[:ahead] {
		if err := readAnswer(q, results); err != nil {
			return failedBatch{results, err}
		}
	}
	return results
}

// waits reports whether something travels in front of the next statement.
func (tx *Tx) waits() bool { return tx.unsent || tx.queued.Len() > 0 }

func readAnswer(q *pgx.QueuedQuery, results pgx.BatchResults) error {
	if q.Fn != nil {
		return q.Fn(results)
	}
	_, err := results.Exec()
	return err
}

// failedBatch is a batch whose queued part has failed: all that is read of it says so.
type failedBatch struct {
	pgx.BatchResults
	err error
}

func (f failedBatch) Exec() (pgconn.CommandTag, error) { return pgconn.CommandTag{}, f.err }
func (f failedBatch) Query() (pgx.Rows, error)         { return noRows{err: f.err}, f.err }
func (f failedBatch) QueryRow() pgx.Row                { return firstRow{err: f.err} }
func (f failedBatch) Close() error {
	_ = f.BatchResults.Close() // it fails as well, and says less
	return f.err
}

// Exec runs one statement.
func (tx *Tx) Exec(ctx context.Context, sql string, args ...any) (tag pgconn.CommandTag, err error) {
	if !tx.waits() {
		return tx.conn.Exec(ctx, sql, args...)
	}
	var b pgx.Batch
	b.Queue(sql, args...).Exec(func(t pgconn.CommandTag) error { tag = t; return nil })
	err = tx.SendBatch(ctx, &b).Close()
	return tag, err
}

// Query runs one statement that returns rows.
func (tx *Tx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if !tx.waits() {
		return tx.conn.Query(ctx, sql, args...)
	}
	var b pgx.Batch
	b.Queue(sql, args...)
	results := tx.SendBatch(ctx, &b)
	rows, err := results.Query()
	if err != nil {
		return rows, cmp.Or(err, results.Close())
	}
	return &firstRows{Rows: rows, results: results}, nil
}

// QueryRow runs one statement that returns a row.
func (tx *Tx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if !tx.waits() {
		return tx.conn.QueryRow(ctx, sql, args...)
	}
	rows, err := tx.Query(ctx, sql, args...)
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

// noRows are the rows of a statement that was not run.
type noRows struct {
	pgx.Rows
	err error
}

func (noRows) Next() bool   { return false }
func (r noRows) Err() error { return r.err }
func (noRows) Close()       {}
