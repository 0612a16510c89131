package backlog_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// The database has the moves that the program has, and no others.
func TestTheDatabaseListsTheMovesOfTheProgram(t *testing.T) {
	t.Parallel()
	rows, err := owner(t, storetest.URL(t)).Query(t.Context(), `SELECT from_state || '>' || to_state FROM transitions`)
	require.NoError(t, err)
	there, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)

	require.ElementsMatch(t, listedMoves(), there)
}

func listedMoves() (list []string) {
	for _, m := range commands.Transitions {
		if pair := fmt.Sprintf("%s>%s", m.From, m.To); !slices.Contains(list, pair) {
			list = append(list, pair)
		}
	}
	return list
}

// Whatever statement moves a task: what is not listed, the database refuses.
func TestTheDatabaseRefusesOtherMoves(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	create(t, boardOf(t, s, "main"), backlog.TaskSpec{Key: "a", Title: "t"})
	conn := owner(t, s.URL)
	for _, from := range commands.States {
		for _, to := range commands.States {
			if from == to {
				continue
			}
			err := moveByHand(t, conn, from, to)
			if slices.Contains(listedMoves(), fmt.Sprintf("%s>%s", from, to)) {
				require.NoError(t, err, "%s to %s", from, to)
				continue
			}
			var refused *pgconn.PgError
			require.ErrorAs(t, err, &refused, "%s to %s", from, to)
			require.Contains(t, []string{"move_is_listed", "terminal_is_final"}, refused.ConstraintName, "%s to %s", from, to)
		}
	}
}

// moveByHand moves the one task of a database, and takes it back.
func moveByHand(t testing.TB, conn *pgx.Conn, from, to commands.State) error {
	t.Helper()
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(t.Context())
	ended := func(s commands.State) string {
		if s.Terminal() {
			return "now()"
		}
		return "NULL"
	}
	for _, sql := range []string{`SET session_replication_role = replica`, // no trigger is asked how it got there
		`UPDATE tasks SET state = '` + string(from) + `', ended_at = ` + ended(from), `SET session_replication_role = origin`} {
		_, err = tx.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	_, err = tx.Exec(t.Context(), `UPDATE tasks SET state = $1, replays = replays + $2, ended_at = `+ended(to), to, map[bool]int{true: 1}[from.Terminal()])
	return err
}
