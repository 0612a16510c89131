package backlog

import (
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/spawnmesh/spawnmesh/commands"
)

// What is held before a claim, in the order of the tables. sql/claim.sql says how
// a claim decides.
const (
	holdBudgets = `SELECT FROM budgets WHERE workspace IN ('', $1) ORDER BY id FOR NO KEY UPDATE`
	holdQuotas  = `SELECT FROM quotas WHERE workspace IN ('', $1) ORDER BY id FOR UPDATE`
)

// takeNewWork refuses new tasks of classes whose lane is closing or closed, or
// whose spent budget says that it refuses. The statement fails then, and with it
// whatever was sent behind it; refusedWork reads the error.
func takeNewWork(batch *pgx.Batch, classes []int) {
	batch.Queue(statement("refuse_new_work"), classes, "")
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
