package store

import (
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// poisonous reports whether the database will refuse the same data for ever: a
// value it cannot hold, a constraint it breaks, or a row that one statement would change twice.
func poisonous(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (strings.HasPrefix(pg.Code, "21") || strings.HasPrefix(pg.Code, "22") || strings.HasPrefix(pg.Code, "23"))
}
