package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/wait"
)

// ErrCommitUnknown is in the error of what may have happened. Any other error of a transaction says that nothing has.
var ErrCommitUnknown = fmt.Errorf("the database did not answer the commit: %w", commands.ErrMayBeDone)

// unknownCommit is a transaction whose commit went out and was not answered.
type unknownCommit struct {
	session string // the name of its session
	mark    int64  // 0 = its function looks for itself what the first run did
	told    bool   // watchers are called about it
}

// markCommit notes the transaction as the last one of its session: committed
// when it is. One that has changed and held nothing has no number, leaves no mark
// and costs no write; should its commit be unknown, it may run again.
const markCommit = `INSERT INTO last_commits (session, mark) SELECT $1, $2 WHERE pg_current_xact_id_if_assigned() IS NOT NULL ON CONFLICT (session) DO UPDATE SET mark = excluded.mark, at = excluded.at`

// nameSession gives each connection a name of its own, by which its session can
// be found from another one.
func nameSession(_ context.Context, c *pgx.ConnConfig) error {
	c.RuntimeParams["application_name"] = "spawnmesh " + rand.Text()
	return nil
}

// keepSession keeps the name where it costs nothing to read.
func keepSession(conn *pgx.Conn) {
	conn.PgConn().CustomData()["session"] = conn.Config().RuntimeParams["application_name"]
}

func sessionOf(conn *pgx.Conn) string { return conn.PgConn().CustomData()["session"].(string) }

// answered reports whether err is the server's word that nothing was committed.
// When a session ends by an error, the commit may have come before it.
func answered(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.SeverityUnlocalized == "ERROR" || errors.Is(err, pgx.ErrTxCommitRollback)
}

// resolveCommit ends the session of a transaction whose commit is unknown, so that nothing more comes
// of it, and reports whether it was committed.
func (db *DB) resolveCommit(ctx context.Context, d unknownCommit) (happened bool, err error) {
	for until := time.Now().Add(outageLimit); ; {
		var alive int
		var b pgx.Batch
		b.Queue("begin")
		b.Queue(`SET LOCAL role = none`) // the login sees its own sessions, the engine's role does not
		b.Queue(`SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = $1`, d.session).
			QueryRow(func(row pgx.Row) error { return row.Scan(&alive) })
		b.Queue(`RESET role`)
		b.Queue(`SELECT EXISTS (SELECT FROM last_commits WHERE session = $1 AND mark = $2)`, d.session, d.mark).
			QueryRow(func(row pgx.Row) error { return row.Scan(&happened) })
		b.Queue("commit")
		if err := db.pool.SendBatch(ctx, &b).Close(); err != nil {
			return false, fmt.Errorf("asking what became of a commit: %w", err)
		}
		switch {
		case alive == 0:
			return happened, nil
		case time.Now().After(until):
			return false, fmt.Errorf("session %q does not end; end it with pg_terminate_backend", d.session)
		}
		if err := wait.For(ctx, 5*time.Millisecond); err != nil {
			return false, err
		}
	}
}
