package backlog

import (
	"errors"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/spawnmesh/spawnmesh/commands"
)

// unfit are the errors of a JSON value that the database does not keep: escapes of
// NUL or of half a character, and numbers beyond its range.
var unfit = []string{"22P02", "22P05", "22003"}

// refusedJSON turns the database's error about a JSON value of the caller's into
// the refusal that it stands for.
func refusedJSON(what string, err error) error {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || !slices.Contains(unfit, pg.Code) {
		return err
	}
	return commands.Refuse(commands.Validation, "%s cannot be stored: %s", what, pg.Message).
		Hinting(`leave out \u0000, halves of surrogate pairs, and numbers of more than 100,000 digits`)
}
