package storetest

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/internal/pgtest"
)

// everything returns the query for all that a database keeps, row by row and in
// no order, without what differs from one history to another that is like it:
// times, ids, digests and places in files. It is the same for all copies.
func everything(t testing.TB, address string) string {
	t.Helper()
	queries := []string{`SELECT 'counted', workspace, lane, what, sum(n) FROM counted GROUP BY workspace, lane, what HAVING sum(n) <> 0`, `SELECT 'grant_keys', count(*) FROM grant_keys`}
	for _, table := range texts(t, address, `SELECT format('%s, %s FROM %I', quote_literal(c.relname), string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum), c.relname)
		FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
		WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'v') AND a.attnum > 0 AND NOT a.attisdropped
			AND a.atttypid <> ALL ('{uuid,uuid[],timestamptz,bytea,bytea[]}'::regtype[]) AND a.attidentity = '' AND a.attname <> 'seq'
			AND c.relname NOT IN ('goose_db_version', 'budget_shards', 'tallies', 'counts', 'counted', 'listeners', 'grant_keys', 'last_commits')
		GROUP BY c.relname`) {
		queries = append(queries, "SELECT "+table)
	}
	require.Greater(t, len(queries), 20, "tables")
	for i, q := range queries {
		queries[i] = fmt.Sprintf(`SELECT x::text FROM (%s) AS x`, q)
	}
	return strings.Join(queries, " UNION ALL ")
}

// content runs the query for all that a database keeps.
func content(t testing.TB, address, everything string) []string {
	t.Helper()
	return alike(texts(t, address, everything))
}

// texts asks a database for texts, in one round trip.
func texts(t testing.TB, address, sql string) []string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), pgtest.Admin(address))
	require.NoError(t, err)
	defer conn.Close(t.Context())
	rows, err := conn.Query(t.Context(), sql, pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return list
}

// volatile is what differs from one run to another that is like it: ids, keys,
// claim grants, times as text and in milliseconds.
var volatile = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|ed25519:[\w-]{43}|cg1\.[\w.-]+|\d{4}-\d\d-\d\d[T ][\d:.]+(Z|[+-]\d\d(:\d\d)?)?|\b\d{13}(\d{3})?\b|\b[0-9a-f]{16}\b|[0-9a-f]{64}`)

// alike replaces ids and times.
func alike(list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = strings.TrimSpace(volatile.ReplaceAllString(s, "*"))
	}
	return out
}
