package meshtest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/store"
)

// living says which connections a mesh still owes something: to one that was
// revoked nothing more is sent.
const living = `conn IN (SELECT id FROM connections WHERE state IN ('active', 'suspended'))`

// atRest are counts that are zero once everything that was asked for is done
// and told.
var atRest = map[string]string{
	"mirrors that have not ended":      `SELECT count(*) FROM mirrors WHERE NOT is_terminal(state) AND ` + living,
	"messages that wait for a receipt": `SELECT count(*) FROM open_outbox WHERE ` + living,
	"tasks that have not ended":        `SELECT count(*) FROM tasks WHERE NOT is_terminal(state)`,
	"tasks that can be claimed":        `SELECT count(*) FROM ready`,
	"leases":                           `SELECT count(*) FROM leases`,
	"open attempts":                    `SELECT count(*) FROM attempts WHERE ended_at IS NULL`,
}

// always are counts that are zero at every moment.
var always = map[string]string{
	"tasks that ran twice at once": `SELECT count(*) FROM attempts a JOIN attempts b USING (task)
		WHERE a.number < b.number AND (a.ended_at IS NULL OR a.ended_at > b.claimed_at)`,
	"tasks without the message that asked for them": `SELECT count(*) FROM tasks t WHERE conn IS NOT NULL
		AND NOT EXISTS (SELECT FROM inbox i WHERE i.conn = t.conn AND i.id = t.command AND i.code = '')`,
	"ended tasks without a result": `SELECT count(*) FROM tasks t JOIN task_bodies b ON b.task = t.id
		WHERE is_terminal(state) AND conn IS NOT NULL AND b.result IS NULL`,
}

// Check waits until everything that was asked for is done and told, and fails
// the test when that does not come, or when something happened twice.
func (m *Mesh) Check(t testing.TB) {
	t.Helper()
	m.rest(t)
	m.agree(t)
}

// rest is Check without a look at whether both sides tell the same.
func (m *Mesh) rest(t testing.TB) {
	t.Helper()
	all := []*Instance{m.Hub.Instance}
	for _, s := range m.Spokes {
		all = append(all, s.Instance)
	}
	for _, i := range all {
		for what, sql := range atRest {
			Await(t, "no "+what+" at "+i.Name, func() bool { return i.Count(t, sql) == 0 })
		}
		for what, sql := range always {
			require.Zero(t, i.Count(t, sql), "%s at %s", what, i.Name)
		}
	}
}

// agree compares each mirror with the task that it mirrors.
func (m *Mesh) agree(t testing.TB) {
	t.Helper()
	for name, s := range m.Spokes {
		theirs := s.Pairs(t, `SELECT id::text, state::text FROM standing WHERE conn = $1`, s.Conn)
		for task, state := range m.Hub.Pairs(t, `SELECT task::text, state::text FROM mirrors WHERE `+living+` AND conn = $1 AND refusal IS NULL`, s.Conn) {
			require.Equal(t, state, theirs[task], "task %s at %s", task, name)
		}
	}
}

// Count asks the instance's database for one number.
func (i *Instance) Count(t testing.TB, sql string, args ...any) (n int) {
	t.Helper()
	ctx, done := withPatience(t)
	defer done()
	require.NoError(t, i.SQL.QueryRow(ctx, sql, args...).Scan(&n), "%s", sql)
	return n
}

// Exec changes the instance's database, and says so as every other process does.
func (i *Instance) Exec(t testing.TB, sql string, args ...any) {
	t.Helper()
	ctx, done := withPatience(t)
	defer done()
	_, err := i.SQL.Exec(ctx, sql, args...)
	require.NoError(t, err, "%s", sql)
	_, err = i.SQL.Exec(ctx, `SELECT pg_notify($1, '')`, store.ChangedChannel)
	require.NoError(t, err)
}

// Pairs asks the instance's database for rows of two texts.
func (i *Instance) Pairs(t testing.TB, sql string, args ...any) map[string]string {
	t.Helper()
	ctx, done := withPatience(t)
	defer done()
	rows, err := i.SQL.Query(ctx, sql, args...)
	require.NoError(t, err, "%s", sql)
	pairs, a, b := map[string]string{}, "", ""
	_, err = pgx.ForEachRow(rows, []any{&a, &b}, func() error { pairs[a] = b; return nil })
	require.NoError(t, err, "%s", sql)
	return pairs
}

// tables says what of each table counts as its content: all, or the columns
// that sending a message does not change.
var tables = map[string]string{
	"instance": "*", "connections": "*", "sequences": "*", "keys": "*", "grants": "*", "invites": "*", "tokens": "*", "inbox": "*",
	"outbox": "id, conn, seq, queue, kind, digest, re, task, exp, envelope", "tasks": "*", "task_bodies": "*", "classes": "*", "parked": "*",
	"ready": "*", "due": "*", "dependencies": "*", "ended_attempts": "*", "ended": "*", "leases": "*", "kills": "*", "agents": "*", "sessions": "*",
	"mirrors": "*", "logs": "*", "log_segments": "*", "log_streams": "*", "outputs": "*",
}

// Sums returns a checksum of every table but the audit, the heartbeats and the
// ones that are named in but.
func (i *Instance) Sums(t testing.TB, but ...string) map[string]string {
	t.Helper()
	var parts []string
	for table, columns := range tables {
		if !strings.Contains(" "+strings.Join(but, " ")+" ", " "+table+" ") {
			parts = append(parts, fmt.Sprintf(`SELECT '%s', md5(coalesce(string_agg(x::text, '|' ORDER BY x::text), '')) FROM (SELECT %s FROM %s) AS x`, table, columns, table))
		}
	}
	return i.Pairs(t, strings.Join(parts, " UNION ALL "))
}

// Audit returns the rows of the audit after seq that have a code: what was
// refused, and what ended otherwise than asked for.
func (i *Instance) Audit(t testing.TB, seq int) []store.AuditRow {
	t.Helper()
	ctx, done := withPatience(t)
	defer done()
	rows, err := i.SQL.Query(ctx, `SELECT seq, at, actor, action, object, code, why, coalesce(conn::text, '') AS conn, coalesce(message::text, '') AS message
		FROM audit WHERE seq > $1 AND code <> '' ORDER BY seq`, seq)
	require.NoError(t, err)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[store.AuditRow])
	require.NoError(t, err)
	return list
}

// AuditEnd returns the number of the newest row of the audit.
func (i *Instance) AuditEnd(t testing.TB) int {
	t.Helper()
	return i.Count(t, `SELECT coalesce(max(seq), 0) FROM audit`)
}
