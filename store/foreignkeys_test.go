package store_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/internal/storetest"
)

// withoutIndex are the foreign keys that no index serves. All lead to connections, of which no row ever goes and no id changes:
// nobody looks for what names one.
var withoutIndex = []string{"pauses (conn)"}

// Where a row goes that others name, the database looks for these by the foreign key: without an index it reads the whole table, for
// each row that goes.
func TestAnIndexServesEachForeignKey(t *testing.T) {
	t.Parallel()
	rows, err := owner(t, storetest.URL(t)).Query(t.Context(), `
		SELECT k.conrelid::regclass || ' (' || (SELECT string_agg(a.attname, ', ' ORDER BY a.attnum) FROM pg_attribute a WHERE a.attrelid = k.conrelid AND a.attnum = ANY (k.conkey)) || ')'
		FROM pg_constraint k WHERE k.contype = 'f' AND NOT EXISTS (
			SELECT FROM pg_index i WHERE i.indrelid = k.conrelid AND i.indpred IS NULL AND (i.indkey::int2[])[0:cardinality(k.conkey) - 1] @> k.conkey) ORDER BY 1`)
	require.NoError(t, err)
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)

	require.Equal(t, withoutIndex, list)
}
