package store

import (
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
			happened, err := db.resolveCommit(ctx, *unknown)
			if happened {
				db.announceAgain(unknown.told)
			}
			if err != nil || happened {
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
			unknown = &unknownCommit{sessionOf(conn.Conn()), tx.mark, tx.wrote && !tx.silent}
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
		return fmt.Errorf("%s: %w: %w", doing, ErrCommitUnknown, err)
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

// end rolls back what was not committed. A connection whose commit is unknown is given up, and one whose server does not answer.
func (tx *Tx) end(ctx context.Context, err error) error {
	if tx.conn.Conn().PgConn().TxStatus() != 'I' && !tx.conn.Conn().IsClosed() {
		rollback := func(ctx context.Context) error {
			_, err := tx.conn.Exec(ctx, "rollback")
			return err
		}
		if within(context.WithoutCancel(ctx), rollback) != nil {
			closeSoon(ctx, tx.conn.Conn())
		}
	}
	return err
}
