package store

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/spawnmesh/spawnmesh/commands"
)

// poisonous reports whether the database will refuse the same data for ever: a
// value it cannot hold, or a constraint it breaks.
func poisonous(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (strings.HasPrefix(pg.Code, "22") || strings.HasPrefix(pg.Code, "23"))
}

// isolate runs messages from..to of a batch; when the data of one poisons them,
// the halves run by themselves, down to the one message that is to blame. The
// others have their effect, in their order.
func isolate(from, to int, run func(from, to int) error, blame func(i int, cause error) error) error {
	err := run(from, to)
	if err == nil || !poisonous(err) {
		return err
	}
	if to-from == 1 {
		return blame(from, err)
	}
	half := (from + to) / 2
	if err := isolate(from, half, run, blame); err != nil {
		return err
	}
	return isolate(half, to, run, blame)
}

// bury audits a message that cannot be stored. It is not confirmed: its sender
// keeps it, and an operator finds the row.
func (db *DB) bury(ctx context.Context, m Incoming, cause error) error {
	return db.Audit(ctx, AuditRow{Actor: string(m.Header.Iss), Action: "message.poisonous", Code: string(commands.Internal),
		Why: cause.Error(), Conn: m.Conn, Message: m.Header.ID})
}
