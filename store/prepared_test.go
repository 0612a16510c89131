package store_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/internal/pgtest"
)

// A database that has been opened before is looked at each time it is opened: what
// changed meanwhile is put right, or refused with what to do.
func TestAnOpenedDatabaseIsLookedAtAgain(t *testing.T) {
	t.Parallel()
	const grant = "let an administrator run: CREATE ROLE spawnmesh_engine"
	c := pgtest.Cluster(t)
	admin := owner(t, c.URL())
	run := func(statements ...string) {
		t.Helper()
		for _, sql := range statements {
			_, err := admin.Exec(t.Context(), sql)
			require.NoError(t, err, sql)
		}
	}
	address := func(user, database string) string {
		u, err := url.Parse(c.URL())
		require.NoError(t, err)
		u.User, u.Path = url.User(user), "/"+database
		return u.String()
	}
	run(`CREATE ROLE ann LOGIN`, `GRANT spawnmesh_engine, spawnmesh_app TO ann`, `CREATE DATABASE first OWNER ann`)
	letIn(t, admin, "ann")
	require.NoError(t, openAt(t.Context(), t, address("ann", "first")))
	for i, tt := range []struct {
		what    string
		change  string // done in the database, which is called this
		then    string // a setting that is off then in each new session
		refused string
		undo    string
	}{
		{what: "nothing changed", change: `SELECT`},
		{what: "everybody may connect", change: `GRANT CONNECT ON DATABASE this TO PUBLIC`},
		{"it forgets what was committed", `ALTER DATABASE this SET synchronous_commit = off`, "synchronous_commit", "synchronous_commit=off and would forget", ``},
		{"its schema is older", `DELETE FROM goose_db_version WHERE version_id > 0`, "", "migrating the database: 00001_initial.sql", ``},
		{"its schema is newer", `INSERT INTO goose_db_version (version_id, is_applied) VALUES (99, true)`, "", "the database has schema 99", ``},
		{"its user may not act as the engine", `REVOKE spawnmesh_engine FROM ann`, "", grant, `GRANT spawnmesh_engine TO ann`},
		{"its user may not act as the application", `REVOKE spawnmesh_app FROM ann`, "", grant, `GRANT spawnmesh_app TO ann`},
		{"it does not sync", `ALTER SYSTEM SET fsync = off`, "fsync", "fsync=off and would forget", `ALTER SYSTEM RESET fsync`},
		{"it writes torn pages", `ALTER SYSTEM SET full_page_writes = off`, "full_page_writes", "full_page_writes=off and would forget", ``},
	} {
		t.Run(tt.what, func(t *testing.T) {
			database := fmt.Sprintf("copy%d", i)
			run(`CREATE DATABASE `+database+` TEMPLATE first OWNER ann STRATEGY FILE_COPY`, `REVOKE CONNECT ON DATABASE `+database+` FROM PUBLIC`)
			_, err := owner(t, address("mesh", database)).Exec(t.Context(), strings.ReplaceAll(tt.change, "this", database))
			require.NoError(t, err)
			if tt.then != "" {
				run(`SELECT pg_reload_conf()`)
				require.Eventually(t, func() bool {
					return ask[string](t, owner(t, address("ann", database)), `SHOW `+tt.then) == "off"
				}, 10*time.Second, 10*time.Millisecond)
			}

			err = openAt(t.Context(), t, address("ann", database))

			if tt.refused == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, tt.refused)
			}
			require.False(t, ask[bool](t, admin, `SELECT has_database_privilege('public', '`+database+`', 'CONNECT')`), "everybody may connect")
			run(tt.undo)
		})
	}
}
