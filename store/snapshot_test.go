package store_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/internal/pgtest"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
)

// A transaction that reads an old state of the database is named, once others have
// changed much since.
func TestALongSnapshotIsNamed(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	reader, err := pgx.Connect(t.Context(), pgtest.Admin(s.URL))
	require.NoError(t, err)
	defer reader.Close(t.Context())
	_, err = reader.Exec(t.Context(), `BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM tasks`)
	require.NoError(t, err)
	young, err := s.DB.LongSnapshot(t.Context())
	require.NoError(t, err)
	require.Nil(t, young)
	writer, err := pgx.Connect(t.Context(), pgtest.Admin(s.URL))
	require.NoError(t, err)
	defer writer.Close(t.Context())
	_, err = writer.Exec(t.Context(), `DO $$ BEGIN FOR i IN 1..100000 LOOP
		BEGIN INSERT INTO retention (kind) VALUES ('x'); RAISE EXCEPTION 'undone'; EXCEPTION WHEN raise_exception THEN NULL; END; END LOOP; END $$`)
	require.NoError(t, err)

	old, err := s.DB.LongSnapshot(t.Context())

	require.NoError(t, err)
	require.EqualValues(t, reader.PgConn().PID(), old.Pid)
	require.GreaterOrEqual(t, old.Age, int64(100_000))
	_, err = reader.Exec(t.Context(), `ROLLBACK`)
	require.NoError(t, err)
	gone, err := s.DB.LongSnapshot(t.Context())
	require.NoError(t, err)
	require.Nil(t, gone)
}
