package backlog_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// What is as old as what goes, and is needed still, stays.
func TestWhatIsOldAndNeededStays(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	b := boardOf(t, s, backlog.MainWorkspace)
	s.Meet(t, store.Obeys)
	lives := s.Conn.ID
	s.MeetAnother(t, store.Obeys)
	ended := s.Conn.ID
	require.NoError(t, s.Exec(`UPDATE connections SET state = CASE id WHEN $1 THEN 'revoked' ELSE state END, state_at = now() - interval '9 days'`, ended))
	n := 100
	require.NoError(t, b.SetQuota(t.Context(), backlog.Quota{Name: "weekly", Scope: "workspace", PerWindow: &n, Window: backlog.Seconds(7 * 24 * time.Hour)}))
	budget(t, b, backlog.Budget{Name: "day", Scope: "workspace", Dimension: "tokens", Hard: 100 * backlog.Unit})
	create(t, b, backlog.TaskSpec{Key: "held", Title: "t", Estimate: tokens(1)})
	held := claimCards(t, b, nil)[0].Fence.Task
	require.NoError(t, s.Exec(`UPDATE quota_uses SET at = now() - interval '9 days'`))
	const (
		beat  = `INSERT INTO heartbeats (conn, at, interval_ms, offset_ms, body) VALUES ($1, now() - interval '9 days', 1, 0, '{}')`
		serv  = `INSERT INTO serving (conn, process, until) VALUES ($1, 'p', now() - interval '9 days')`
		kill  = `INSERT INTO kills (conn, command, digest, task, reason, grace, exp, tombstone) SELECT id, gen_random_uuid(), '', $1, '', '0', now() - interval '9 days', NOT EXISTS (SELECT FROM tasks WHERE id = $1) FROM connections LIMIT 1`
		use   = `INSERT INTO quota_uses (quota, task, attempt, workspace, at) SELECT id, gen_random_uuid(), 1, 'main', now() - $1::text::interval FROM quotas`
		count = `INSERT INTO counts (workspace, lane, what, n) VALUES ('main', 'l' || $1::int, 'ready', $1)`
		sum   = `INSERT INTO budget_shards (budget, shard, workspace) VALUES ($1, 99, 'main')`
		part  = `INSERT INTO charges (budget, workspace, amount, at) SELECT id, 'main', 1, now() - interval '9 days' FROM (SELECT max(id) FROM budgets UNION SELECT $1::int) AS b (id)`
	)
	for _, row := range []struct {
		sql string
		arg any
	}{
		{beat, lives}, {beat, ended}, {serv, lives}, {serv, ended},
		{kill, held}, {kill, storetest.NewID()}, {use, "6 days"}, {use, "8 days"}, {sum, 999}, {part, 999},
		{count, 0}, {count, 5},
	} {
		require.NoError(t, s.Exec(row.sql, row.arg))
	}

	removed, err := s.DB.Prune(t.Context(), 0, time.Minute)

	require.NoError(t, err)
	for what, tt := range map[string]struct {
		kind string
		sql  string
		left int
		gone int // rows of the kind; 0: one
	}{
		"the heartbeat of a connection that lives":  {"connections", `SELECT count(*) FROM heartbeats WHERE conn = '` + lives + `'`, 1, 2},
		"who serves a connection that lives":        {"connections", `SELECT count(*) FROM serving WHERE conn = '` + lives + `'`, 1, 2},
		"a kill of a task that is there":            {"kills", `SELECT count(*) FROM kills WHERE task = '` + held + `'`, 1, 0},
		"claims of a quota's window, and held ones": {"quota-uses", `SELECT count(*) FROM quota_uses`, 2, 0},
		"a count that is not zero":                  {"counts", `SELECT count(*) FROM counts WHERE lane = 'l5'`, 1, 0},
		"the charges of a budget that is there":     {"budget-sums", `SELECT count(*) FROM charges`, 1, 2},
		"the sums of a budget that is there":        {"budget-sums", `SELECT count(*) FROM budget_shards WHERE reserved > 0`, 1, 2},
	} {
		require.Equal(t, tt.left, s.Count(t, tt.sql), what)
		require.EqualValues(t, max(tt.gone, 1), removed[tt.kind], "%s: the others go", what)
	}
}
