package backlog

import (
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/spawnmesh/spawnmesh/commands"
)

// takeNewWork refuses new tasks whose lane is closing or closed, or for which a
// budget that refuses has no room. The statement fails then, and with it whatever
// was sent behind it; refusedWork reads the error.
func takeNewWork(batch *pgx.Batch, workspace string, classes []int, estimates []amounts) {
	batch.Queue(`SELECT refuse_new_work($1, $2, $3)`, workspace, classes, estimates)
}

// refusedWork turns the error of takeNewWork into the refusal that it stands for.
func refusedWork(err error) error {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case !ok || pg.Code != "SM002":
		return err
	case pg.ConstraintName == "":
		return commands.Refuse(commands.LaneClosed, "lane %s is %s and takes no new tasks", pg.Detail, pg.Hint).Hinting("open it").Running("lane", "resume", pg.Detail)
	}
	return commands.Refuse(commands.OverBudget, "budget %s is spent and refuses new tasks", pg.ConstraintName).Hinting("see").Running("budget", "show", pg.ConstraintName)
}
