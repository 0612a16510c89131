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

// isolate runs a batch; when the data of one message poisons it, the halves run
// by themselves, down to the one message that is to blame. The others have their
// effect, in their order.
func isolate[T any](batch []Incoming, run func([]Incoming) (T, error), blame func(Incoming, error) (T, error), merge func(a, b T) T) (T, error) {
	out, err := run(batch)
	if err == nil || !poisonous(err) {
		return out, err
	}
	if len(batch) == 1 {
		return blame(batch[0], err)
	}
	first, err := isolate(batch[:len(batch)/2], run, blame, merge)
	if err != nil {
		return first, err
	}
	second, err := isolate(batch[len(batch)/2:], run, blame, merge)
	return merge(first, second), err
}

// bury audits a message that cannot be stored. It is not confirmed: its sender
// keeps it, and an operator finds the row.
func (db *DB) bury(ctx context.Context, m Incoming, cause error) error {
	return db.Audit(ctx, AuditRow{Actor: string(m.Header.Iss), Action: "message.poisonous", Code: string(commands.Internal),
		Why: cause.Error(), Conn: m.Conn, Message: m.Header.ID})
}
