package meshtest

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
)

// closeDatabase makes the server of an instance's database refuse it, until open is
// called or the test ends.
func (i *Instance) closeDatabase(t *testing.T) (open func()) {
	t.Helper()
	cfg := i.SQL.Config().ConnConfig.Copy()
	name := cfg.Database
	cfg.Database = "postgres"
	exec := func(sql string, args ...any) {
		server, err := pgx.ConnectConfig(context.WithoutCancel(t.Context()), cfg)
		require.NoError(t, err)
		_, err = server.Exec(context.WithoutCancel(t.Context()), sql, args...)
		require.NoError(t, err)
		require.NoError(t, server.Close(context.WithoutCancel(t.Context())))
	}
	database := "ALTER DATABASE " + pgx.Identifier{name}.Sanitize()
	exec(database + " ALLOW_CONNECTIONS false")
	open = sync.OnceFunc(func() { exec(database + " ALLOW_CONNECTIONS true") })
	t.Cleanup(open)
	exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1`, name)
	return open
}

// An agent whose spoke has claimed it, and then loses its database for longer than it waits for that, starts when it is back.
func TestAnAgentStartsThoughTheDatabaseWasAway(t *testing.T) {
	t.Parallel()
	m := Start(t, "attic")
	s := m.Spokes["attic"]
	hold, err := s.SQL.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = hold.Rollback(context.WithoutCancel(t.Context())) }() // its connection is cut
	_, err = hold.Exec(t.Context(), `LOCK TABLE task_checkpoints`)           // the last that it asks before the start
	require.NoError(t, err)
	id := m.Spawn(t, "attic", "true")
	Await(t, "that it is claimed", func() bool {
		return s.Count(t, `SELECT count(*) FROM leases`) > 0 && s.Count(t, `SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid)
			WHERE NOT l.granted AND l.relation = 'task_checkpoints'::regclass AND a.query LIKE 'SELECT%'`) > 0 // and not the pruner alone
	})

	open := s.closeDatabase(t)

	Await(t, "that the spoke has waited long enough", func() bool {
		return strings.Contains(s.Log.String(), "an agent could not be started, by a fault of this host")
	})
	open()
	require.Equal(t, commands.Completed, m.Wait(t, id).State)
}

// Whatever is asked of an instance whose database is away, the answer is that: who
// asked tries again. It is no defect of ours.
func TestEveryRouteSaysThatTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	m := Start(t, "attic")
	const task = "0194d7a0-0000-7000-8000-000000000000"
	writes := map[string]map[string]any{"/api/v1/tasks/" + task + "/kill": {"reason": "so"}, "/api/v1/workspaces/main/tasks": {"items": []any{map[string]any{"title": "x"}}}}
	for of, i := range map[string]*Instance{"hub": m.Hub.Instance, "spoke": m.Spokes["attic"].Instance} {
		i.closeDatabase(t)
		for _, path := range []string{"/api/v1/tasks", "/api/v1/tasks/" + task, "/api/v1/audit", "/api/v1/keys", "/api/v1/connections"} {
			err := i.Ask(t, "GET", path, nil, nil)

			require.Equal(t, commands.StoreDown, commands.CodeOf(err), "%s %s: %v", of, path, err)
		}
		for path, body := range writes {
			err := i.Ask(t, "POST", path, body, nil)

			require.Equal(t, commands.StoreDown, commands.CodeOf(err), "%s %s: %v", of, path, err)
			require.Contains(t, err.Error(), "nothing was accepted", "%s %s", of, path)
		}
	}
}
