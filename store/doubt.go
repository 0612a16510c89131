package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// inDoubt is a transaction whose commit went out and was not answered.
type inDoubt struct {
	session string // the name of its session
	number  string // its xid; "" when that was to come with the same answer
}

// nameSession gives each connection a name of its own, by which its session can
// be found from another one.
func nameSession(_ context.Context, c *pgx.ConnConfig) error {
	c.RuntimeParams["application_name"] = "spawnmesh " + rand.Text()
	return nil
}

func (tx *Tx) doubt() *inDoubt {
	return &inDoubt{tx.conn.Conn().Config().RuntimeParams["application_name"], tx.number}
}

// answered reports whether err is the server's word that nothing was committed.
// When a session ends by an error, the commit may have come before it.
func answered(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.SeverityUnlocalized == "ERROR" || errors.Is(err, pgx.ErrTxCommitRollback)
}

// settle ends the session of a transaction in doubt, so that nothing more comes
// of it, and reports whether it was committed. Without its number the answer is
// no: its function runs again and finds what it did.
func (db *DB) settle(ctx context.Context, d inDoubt) (happened bool, err error) {
	for until := time.Now().Add(outageLimit); ; {
		var alive int
		var status *string
		var b pgx.Batch
		b.Queue("begin")
		b.Queue(`SET LOCAL role = none`) // the login sees its own sessions, the engine's role does not
		b.Queue(`SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = $1`, d.session).
			QueryRow(func(row pgx.Row) error { return row.Scan(&alive) })
		b.Queue(`SELECT pg_xact_status(nullif($1, '')::xid8)`, d.number).QueryRow(func(row pgx.Row) error { return row.Scan(&status) })
		b.Queue("commit")
		if err := db.pool.SendBatch(ctx, &b).Close(); err != nil {
			return false, fmt.Errorf("asking what became of transaction %s: %w", d.number, err)
		}
		switch {
		case alive == 0 && (status == nil || *status != "in progress"):
			return status != nil && *status == "committed", nil
		case time.Now().After(until):
			return false, fmt.Errorf("session %q does not end; end it with pg_terminate_backend", d.session)
		}
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			return false, err
		}
	}
}
