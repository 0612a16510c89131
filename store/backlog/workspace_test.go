package backlog_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/pgtest"
	"github.com/spawnmesh/spawnmesh/internal/scale"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// asApp connects as somebody who got hold of the application's role.
func asApp(t testing.TB, s *side) *pgx.Conn {
	t.Helper()
	cfg, err := pgx.ParseConfig(pgtest.Admin(s.URL))
	require.NoError(t, err)
	cfg.RuntimeParams["role"] = "spawnmesh_app"
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

// Every table that has a workspace and that the application's role may touch keeps
// workspaces apart, by force.
func TestCatalogueOfWorkspaces(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	const loose = `SELECT count(*) FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
		WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace AND a.attname = 'workspace' AND NOT a.attisdropped
			AND has_table_privilege('spawnmesh_app', c.oid, 'SELECT, INSERT, UPDATE, DELETE') AND `

	require.Greater(t, s.Count(t, loose+`true`), 15)
	require.Zero(t, s.Count(t, loose+`NOT (c.relrowsecurity AND c.relforcerowsecurity)`), "row-level security is forced")
	require.Zero(t, s.Count(t, loose+`NOT EXISTS (SELECT FROM pg_policy p WHERE p.polrelid = c.oid AND p.polcmd = '*' AND p.polname = 'here'
		AND p.polroles = ARRAY['spawnmesh_app'::regrole::oid] AND p.polqual IS NOT NULL AND p.polwithcheck IS NOT NULL)`), "each has the one policy for all commands")
	require.Zero(t, s.Count(t, loose+`(SELECT count(*) FROM pg_policy p WHERE p.polrelid = c.oid AND NOT (c.relname = 'audit' AND p.polname = 'pruning' AND p.polroles = ARRAY[c.relowner])) <> 2`),
		"and no policy that nobody knows of")
	require.Zero(t, s.Count(t, loose+`has_table_privilege('spawnmesh_app', c.oid, 'TRUNCATE, REFERENCES, TRIGGER')`))
	require.Zero(t, s.Count(t, `SELECT count(*) FROM pg_roles WHERE rolname IN ('spawnmesh_app', 'spawnmesh_engine') AND (rolsuper OR rolbypassrls OR rolcreaterole OR rolcreatedb)`))
	require.Zero(t, s.Count(t, `SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relowner IN ('spawnmesh_app'::regrole, 'spawnmesh_engine'::regrole)`), "neither owns anything")
	require.Zero(t, s.Count(t, loose+`has_table_privilege('spawnmesh_app', 'audit', 'UPDATE, DELETE')`), "the audit only grows")
	require.Zero(t, s.Count(t, `SELECT count(*) FROM pg_class WHERE relkind = 'v' AND relnamespace = 'public'::regnamespace AND NOT coalesce('security_invoker=true' = ANY (reloptions), false)`))
}

func TestWithoutAWorkspaceThereIsNothing(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	create(t, boardOf(t, s, "red"), backlog.TaskSpec{Key: "A1", Title: "a"})
	app := asApp(t, s)
	count := func() (n int) {
		require.NoError(t, app.QueryRow(t.Context(), `SELECT count(*) FROM tasks`).Scan(&n))
		return n
	}

	require.Zero(t, count(), "no setting")
	_, err := app.Exec(t.Context(), `BEGIN; SET LOCAL spawnmesh.workspace = 'red'; COMMIT`)
	require.NoError(t, err)
	require.Zero(t, count(), "after a transaction the setting is empty, which is no workspace")
	_, err = app.Exec(t.Context(), `INSERT INTO ready (class, rank, seq, task, workspace, lane, expires_at) VALUES (1, 0, 0, gen_random_uuid(), 'red', 'default', 'infinity')`)
	require.ErrorContains(t, err, "row-level security")
	_, err = app.Exec(t.Context(), `TRUNCATE tasks`)
	require.ErrorContains(t, err, "permission denied")
}

// The application's role signs claim grants, makes keys and ends their signing. A
// key that is there keeps its secret, and verifies no longer than it was to.
func TestASecretOfGrantsIsNotChanged(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	_, err := boardOf(t, s, "red").RotateGrantKey(t.Context())
	require.NoError(t, err)
	app := asApp(t, s)

	for what, allowed := range map[string]bool{"signs_until = now()": true, "secret = sha256('x')": false, "verifies_until = 'infinity'": false, "kid = 'x'": false} {
		_, err := app.Exec(t.Context(), `UPDATE grant_keys SET `+what)
		if allowed {
			require.NoError(t, err, what)
			continue
		}
		require.ErrorContains(t, err, "permission denied", what)
	}
	_, err = app.Exec(t.Context(), `DELETE FROM grant_keys`)
	require.ErrorContains(t, err, "permission denied")
}

func TestWorkspacesDoNotSeeEachOther(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	red, blue := boardOf(t, s, "red"), boardOf(t, s, "blue")
	a := create(t, red, backlog.TaskSpec{Key: "A1", Title: "of red", IdempotencyKey: "once"})[0]
	b := create(t, blue, backlog.TaskSpec{Key: "A1", Title: "of blue", IdempotencyKey: "once"})[0]
	require.False(t, b.Existing, "the same keys in another workspace are other keys")

	claimed := claimCards(t, red, nil)
	require.Len(t, claimed, 1)
	for what, err := range map[string]error{
		"show":     second(blue.Show(t.Context(), a.ID)),
		"prefix":   second(blue.Show(t.Context(), a.ID[:34])),
		"complete": second(blue.Complete(t.Context(), backlog.Act{Fence: &claimed[0].Fence})),
		"cancel":   second(blue.Cancel(t.Context(), backlog.Act{Task: a.ID})),
		"link":     blue.Link(t.Context(), "A1", a.ID),
		"depend":   second(blue.Create(t.Context(), backlog.TaskSpec{Title: "x", DependsOn: []string{a.ID}})),
	} {
		require.Equal(t, commands.NotFound, commands.CodeOf(err), "%s: %v", what, err)
	}
	_, err := blue.Renew(t.Context(), claimed[0].Fence, 0)
	require.Equal(t, commands.NotFound, commands.CodeOf(err), "renew: %v", err)
	_, err = blue.VerifyGrant(t.Context(), claimed[0].Grant)
	require.Equal(t, commands.GrantMismatch, commands.CodeOf(err), "a grant of another workspace: %v", err)
	stats, err := blue.Stats(t.Context())
	require.NoError(t, err)
	require.Equal(t, int64(1), stats.Status[backlog.BoardReady])
	require.Zero(t, stats.Status[backlog.BoardClaimed])
	for _, w := range []string{"", "Red", "a'; reset role; --", "a b"} {
		_, err := s.backlog.Workspace(w, "ann")
		require.Equal(t, commands.Validation, commands.CodeOf(err), "%q", w)
	}
}

func second[T any](_ T, err error) error { return err }

// The pool hands connections from one workspace's work to another's, also after
// work that was given up half-way. What one sees is never the other's.
func TestPooledConnectionsCarryNothingOver(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	names := []string{"red", "blue", "green"}
	boards := map[string]*backlog.Workspace{}
	for _, n := range names {
		boards[n] = boardOf(t, s, n)
		create(t, boards[n], backlog.TaskSpec{Key: n, Title: n}, backlog.TaskSpec{Title: n})
	}
	r := rand.New(rand.NewPCG(1, 2))
	rounds := scale.Larger(t, "SPAWNMESH_POOL_ROUNDS", 200, 1000)

	for i := range rounds {
		n := names[r.IntN(len(names))]
		ctx, stop := context.WithCancel(t.Context())
		if r.IntN(4) == 0 {
			ctx, stop = context.WithTimeout(t.Context(), time.Duration(r.IntN(1500))*time.Microsecond)
		}
		list, err := boards[n].List(ctx, backlog.Filter{})
		stop()
		if err != nil {
			require.ErrorIs(t, err, context.DeadlineExceeded, "round %d", i)
			continue
		}
		require.Len(t, list, 2, "round %d", i)
		for _, task := range list {
			require.Equal(t, n, task.Title, "round %d", i)
		}
	}
	require.Equal(t, 6, s.Count(t, `SELECT count(*) FROM tasks`), "the engine sees all")
	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM (SELECT 1 WHERE current_user = 'spawnmesh_engine' AND coalesce(current_setting('spawnmesh.workspace', true), '') = '') AS x`))
}

// A worker that logs in by itself sees what binds the whole instance, and works
// under it. What it may change is its workspace's own.
func TestTheInstancesLimitsAreItsOwners(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	b := boardOf(t, s, "red")
	nine := 9
	require.NoError(t, b.SetBudget(t.Context(), backlog.Budget{Name: "all", Scope: "instance", Dimension: "usd", Hard: 9 * backlog.Unit}))
	require.NoError(t, b.SetQuota(t.Context(), backlog.Quota{Name: "all", Scope: "instance", Concurrent: &nine}))
	require.NoError(t, b.SetBudget(t.Context(), backlog.Budget{Name: "own", Scope: "workspace", Dimension: "usd", Hard: backlog.Unit}))
	create(t, b, backlog.TaskSpec{Title: "x", Estimate: map[string]backlog.Amount{"usd": backlog.Unit}})
	worker := asApp(t, s)

	require.Len(t, claimCards(t, b, nil), 1, "a claim reserves of what binds it")
	_, err := worker.Exec(t.Context(), `SET spawnmesh.workspace = 'red'`)
	require.NoError(t, err)
	for _, sql := range []string{
		`UPDATE budgets SET hard = 0 WHERE name = 'all'`, `DELETE FROM budgets WHERE name = 'all'`, `UPDATE budgets SET workspace = '', scope = 'instance' WHERE name = 'own'`,
		`INSERT INTO budgets (workspace, name, scope, dimension, hard) VALUES ('', 'more', 'instance', 'usd', 1)`,
		`UPDATE quotas SET concurrent = 99`, `DELETE FROM quotas`, `INSERT INTO quotas (workspace, name, scope, concurrent) VALUES ('', 'more', 'instance', 1)`,
		`INSERT INTO freezes (workspace, scope, reason, actor) VALUES ('', 'instance', 'x', 'x')`,
	} {
		_, err := worker.Exec(t.Context(), sql)
		require.ErrorContains(t, err, "is changed by the owner of the instance only", sql)
	}
	_, err = worker.Exec(t.Context(), `UPDATE budgets SET hard = 2000000 WHERE name = 'own'`)
	require.NoError(t, err, "its workspace's own")
	require.NoError(t, failed(b.Freeze(t.Context(), backlog.Freeze{Scope: "instance", Reason: "holiday"})))
	_, err = worker.Exec(t.Context(), `DELETE FROM freezes`)
	require.ErrorContains(t, err, "is changed by the owner of the instance only")
	require.NoError(t, b.Unfreeze(t.Context(), "instance", "", "back"))
	_, err = b.GrantBudget(t.Context(), "all", backlog.Unit, "more")
	require.NoError(t, err)
	require.NoError(t, b.RemoveBudget(t.Context(), "all", "over"))
	require.NoError(t, b.RemoveQuota(t.Context(), "all", "over"))
}
