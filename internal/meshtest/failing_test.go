package meshtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/scale"
)

// raising is a trigger in the tables that every order and every message is written to, which answers as the server does
// where it cannot go on.
func raising(condition string) []string {
	list := []string{`CREATE FUNCTION failing() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not now' USING ERRCODE = '` + condition + `'; END $$`}
	for _, table := range []string{"inbox", "outbox"} {
		list = append(list, `CREATE TRIGGER failing BEFORE INSERT ON `+table+` FOR EACH STATEMENT EXECUTE FUNCTION failing()`)
	}
	return list
}

var noFailing = []string{`DROP FUNCTION failing() CASCADE`}

// A failure is how a database stays and stores nothing.
type failure struct {
	begin, end []string // this stands for the database
	sessions   bool     // it is that of new sessions: those that there are end
}

var failures = map[string]failure{
	"it is read-only":           {[]string{`ALTER DATABASE this SET default_transaction_read_only = on`}, []string{`ALTER DATABASE this RESET default_transaction_read_only`}, true},
	"it has no connection left": {[]string{`ALTER DATABASE this CONNECTION LIMIT 0`}, []string{`ALTER DATABASE this CONNECTION LIMIT -1`}, true},
	"its disk is full":          {raising("disk_full"), noFailing, false},
	"a lock is not to be had":   {raising("lock_not_available"), noFailing, false},
	"others are always first":   {raising("serialization_failure"), noFailing, false},
	"statements take too long":  {raising("query_canceled"), noFailing, false},
}

// alter runs statements in the database of an instance, and ends the sessions of the instance.
func (i *Instance) alter(t *testing.T, statements []string, ends bool) {
	t.Helper()
	name := pgx.Identifier{i.SQL.Config().ConnConfig.Database}.Sanitize()
	for _, sql := range statements {
		_, err := i.SQL.Exec(t.Context(), `SET default_transaction_read_only = off; `+strings.ReplaceAll(sql, "this", name))
		require.NoError(t, err, sql)
	}
	if ends {
		_, err := i.SQL.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND usename <> current_user`)
		require.NoError(t, err)
	}
}

// However a database fails, what is asked is refused with the code of that and nothing of it is kept; what a peer has said stays
// with the peer; and all goes on by itself with the database.
func TestAFailingDatabaseTakesNothing(t *testing.T) {
	t.Parallel()
	for name, f := range scale.SomeCases(t, 1, failures) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := Start(t, "attic")
			attic := m.Spokes["attic"].Instance
			gate := filepath.Join(t.TempDir(), "gate")
			runs := m.Spawn(t, "attic", "sh", "-c", "until [ -e "+gate+" ]; do sleep 0.05; done")
			m.Await(t, runs, commands.Running)
			orders := m.Hub.Count(t, `SELECT count(*) FROM mirrors`)

			m.Hub.alter(t, f.begin, f.sessions)
			err := m.Hub.Ask(t, "POST", "/api/v1/tasks", map[string]any{"spoke": "attic", "runtime": "noop"}, nil)
			require.NoError(t, os.WriteFile(gate, nil, 0o600))
			Await(t, "the end at the spoke", func() bool {
				return attic.Count(t, `SELECT count(*) FROM tasks WHERE state = 'completed'`) == 1
			})

			require.Equal(t, commands.StoreDown, commands.CodeOf(err), "%v", err)
			require.Regexp(t, "^(this instance cannot store or read now; nothing was accepted|the database server has no connection left: )", err.Error())
			require.Equal(t, orders, m.Hub.Count(t, `SELECT count(*) FROM mirrors`))
			require.Equal(t, 1, m.Hub.Count(t, `SELECT count(*) FROM mirrors WHERE state = 'running'`), "what it was told is not taken")
			m.Hub.alter(t, f.end, false)
			require.Equal(t, 1, m.Wait(t, runs).Attempt)

			attic.alter(t, f.begin, f.sessions)
			next := m.Noop(t, "attic")
			m.Hub.Do(t, "GET", "/api/v1/tasks/"+next+"?wait=1s", nil, nil)
			require.Zero(t, attic.Count(t, `SELECT count(*) FROM tasks WHERE id = $1`, next))
			attic.alter(t, f.end, false)

			require.Equal(t, commands.Completed, m.Wait(t, next).State)
			m.Check(t)
		})
	}
}
