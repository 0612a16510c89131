package store

import (
	"cmp"
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/spawnmesh/spawnmesh/internal/crash"
)

// A Tx is one transaction of an instance's database. It costs no round trip of
// its own to begin: its opening statements travel with the first one of the
// caller. What it says to others, [Tx.Audit] and [Tx.Send], is written at its
// end, after everything else.
type Tx struct {
	db        *DB
	doing     string
	workspace string
	conn      *pgxpool.Conn
	unsent    bool // nothing was sent yet: begin travels with the first statement
	readOnly  bool
	mark      int64 // by which its commit is known; 0 = it is not looked for
	ending    bool  // the commit is on its way
	committed bool  // and was answered
	wrote     bool  // something, as far as is known
	silent    bool  // no watcher is called about it

	audit  []AuditRow
	drafts []Draft
	sealed outboxRows           // numbered already
	next   map[string]*numbered // numbers that are this transaction's already, by connection
	queued pgx.Batch            // travels in front of what is sent next

	reserved map[string]int // how many numbers are to be taken with the next Flush, by connection

	last []func(context.Context) error // what locks sequences of other connections, in TakeIn
}

// Tx runs fn in a transaction, again after an outage, and has its effect once:
// when the answer to the commit is lost, the server is asked what became of it,
// and fn runs again only when nothing did. What fn has put into variables of its
// caller stays; a new run begins with resetting it. Errors and crash points name
// what it is doing. Tests end the process before and after every commit, by that
// name.
func (db *DB) Tx(ctx context.Context, doing string, fn func(ctx context.Context, tx *Tx) error) error {
	return db.TxIn(ctx, doing, "", fn)
}

// TxIn is Tx in one workspace: the database itself keeps what belongs to other
// workspaces out of sight.
func (db *DB) TxIn(ctx context.Context, doing, workspace string, fn func(ctx context.Context, tx *Tx) error) error {
	var unknown *unknownCommit
	var sent outboxRows
	doubt := false // whether one of the runs has sent something that may be committed, too
	err := db.retry(ctx, func(ctx context.Context) error {
		if unknown != nil {
			if happened, err := db.resolveCommit(ctx, *unknown); err != nil || happened {
				return err
			}
			unknown = nil
		}
		conn, err := db.pool.Acquire(ctx)
		if err != nil {
			return err
		}
		defer conn.Release()
		tx := &Tx{db: db, doing: doing, workspace: workspace, conn: conn, unsent: true, mark: db.marks.Add(1)}
		if err = fn(ctx, tx); err == nil {
			err = tx.commit(ctx)
		}
		if sent = tx.sealed; tx.ending && !tx.committed && !answered(err) {
			unknown = &unknownCommit{sessionOf(conn.Conn()), tx.mark}
			doubt = true
		}
		err = tx.end(ctx, err)
		db.announce(ctx, tx, unknown != nil)
		return err
	})
	if doubt {
		db.cursors.rereadAll()
	}
	switch {
	case err == nil:
		crash.Point("after " + doing)
		db.handOver(sent)
		return nil
	case unknown != nil:
		return fmt.Errorf("%s: the database did not answer the commit, so it may have happened: %w", doing, err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// ReadIn runs fn in a transaction of one workspace that changes nothing, again
// after an outage.
func (db *DB) ReadIn(ctx context.Context, doing, workspace string, fn func(ctx context.Context, tx *Tx) error) error {
	err := db.retry(ctx, func(ctx context.Context) error {
		conn, err := db.pool.Acquire(ctx)
		if err != nil {
			return err
		}
		defer conn.Release()
		tx := &Tx{db: db, doing: doing, workspace: workspace, conn: conn, unsent: true, readOnly: true}
		return tx.end(ctx, fn(ctx, tx))
	})
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return nil
}

// open returns what goes in front of the first statement.
func (tx *Tx) open() *pgx.Batch {
	b := &pgx.Batch{}
	if tx.readOnly {
		b.Queue("begin read only")
	} else {
		b.Queue("begin")
	}
	if tx.workspace != "" {
		// Both settings end with the transaction, so a pooled connection carries
		// neither on.
		b.Queue(`SELECT set_config('role', '`+appRole+`', true), set_config('spawnmesh.workspace', $1, true)`, tx.workspace)
	}
	return b
}

// Audit adds rows to the audit at the end of the transaction.
func (tx *Tx) Audit(rows ...AuditRow) { tx.audit = append(tx.audit, rows...) }

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

// SendLast sends b and what was queued with the commit behind it, in one round
// trip when no message was queued. Nothing may follow. A lost answer to the
// commit takes the results of b with it: fn runs again, after the server has
// ended the first run, and finds by ids of its own what that one did.
func (tx *Tx) SendLast(ctx context.Context, b *pgx.Batch) error {
	tx.mark = 0
	return tx.sendLast(ctx, b)
}

// TellNobody says that nobody waits for what the transaction writes: no watcher is called
// about it.
func (tx *Tx) TellNobody() { tx.silent = true }

func (tx *Tx) sendLast(ctx context.Context, b *pgx.Batch) error {
	crash.Point("before " + tx.doing)
	queueAudit(b, tx.workspace, tx.audit)
	if len(tx.drafts) > 0 {
		if tx.number(b, tx.drafts) {
			if err := tx.SendBatch(ctx, b).Close(); err != nil {
				return err
			}
			b = &pgx.Batch{}
		}
		if _, err := tx.sealNow(tx.drafts); err != nil {
			return err
		}
	}
	tx.sealed.insert(b)
	tx.giveBack(b)
	tx.wrote = true
	if tx.mark != 0 {
		if tx.workspace != "" {
			b.Queue("RESET role") // the one of workspaces sees no marks
		}
		b.Queue(markCommit, sessionOf(tx.conn.Conn()), tx.mark).Exec(func(tag pgconn.CommandTag) error {
			tx.wrote = tag.RowsAffected() > 0
			return nil
		})
	}
	b.Queue("commit").Exec(func(tag pgconn.CommandTag) error {
		if tag.String() == "ROLLBACK" {
			return pgx.ErrTxCommitRollback
		}
		return nil
	})
	tx.ending = true
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return err
	}
	tx.committed = true
	return nil
}

// commit ends a transaction that was not ended by SendLast.
func (tx *Tx) commit(ctx context.Context) error {
	if tx.committed {
		return nil
	}
	if tx.unsent && len(tx.audit)+len(tx.drafts)+tx.queued.Len() == 0 {
		crash.Point("before " + tx.doing)
		return nil // nothing was done
	}
	return tx.sendLast(ctx, &pgx.Batch{})
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

// end rolls back what was not committed. A connection whose commit is unknown is given up.
func (tx *Tx) end(ctx context.Context, err error) error {
	if tx.conn.Conn().PgConn().TxStatus() != 'I' && !tx.conn.Conn().IsClosed() {
		if _, again := tx.conn.Exec(context.WithoutCancel(ctx), "rollback"); again != nil {
			_ = tx.conn.Conn().Close(context.WithoutCancel(ctx))
		}
	}
	return err
}

// noRows are the rows of a statement that was not run.
type noRows struct {
	pgx.Rows
	err error
}

func (noRows) Next() bool   { return false }
func (r noRows) Err() error { return r.err }
func (noRows) Close()       {}
