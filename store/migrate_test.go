package store_test

import (
	"context"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/pressly/goose/v3/lock"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/pgtest"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/postgres"
)

func owner(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func ask[T any](t *testing.T, conn *pgx.Conn, sql string) (value T) {
	t.Helper()
	require.NoError(t, conn.QueryRow(t.Context(), sql).Scan(&value))
	return value
}

func openAt(ctx context.Context, t *testing.T, url string) error {
	t.Helper()
	sign := storetest.Signer(t, 1)
	db, err := store.Open(ctx, store.Config{URL: url, Self: signing.InstanceIDOf(sign.Public()), Signer: sign})
	if err == nil {
		db.Close()
	}
	return err
}

// All that a second run could change.
const schemaNow = `SELECT md5(string_agg(c::text, '' ORDER BY c.oid)) || (SELECT string_agg(v::text, '' ORDER BY id) FROM goose_db_version v)
	FROM (SELECT oid, xmin, relname FROM pg_class WHERE relnamespace = 'public'::regnamespace) AS c`

func TestTheSchemaIsMadeOnce(t *testing.T) {
	t.Parallel()
	pgtest.EveryVersion(t, func(t *testing.T, c *postgres.Cluster) {
		require.NoError(t, openAt(t.Context(), t, c.URL()))
		conn := owner(t, c.URL())
		made := ask[string](t, conn, schemaNow)

		require.NoError(t, openAt(t.Context(), t, c.URL()))

		require.Equal(t, made, ask[string](t, conn, schemaNow))
		require.Equal(t, 2, ask[int](t, conn, `SELECT max(version_id) FROM goose_db_version`))
	})
}

func TestANewerSchemaIsRefused(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	require.NoError(t, openAt(t.Context(), t, url))
	conn := owner(t, url)
	_, err := conn.Exec(t.Context(), `INSERT INTO goose_db_version (version_id, is_applied) VALUES (99, true)`)
	require.NoError(t, err)

	err = openAt(t.Context(), t, url)

	require.EqualError(t, err, "migrating the database: the database has schema 99 and this program knows up to 2: "+
		"a newer spawnmesh has migrated it; run that one, nothing was changed")
}

func TestAMigratedDatabaseOpensWithoutTheLock(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	require.NoError(t, openAt(t.Context(), t, url))
	_, err := owner(t, url).Exec(t.Context(), `SELECT pg_advisory_lock($1)`, lock.DefaultLockID)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()

	require.NoError(t, openAt(ctx, t, url))
}

func TestStartsAtOnceTakeTurns(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	conn := owner(t, url)
	_, err := conn.Exec(t.Context(), `SELECT pg_advisory_lock($1)`, lock.DefaultLockID)
	require.NoError(t, err)
	var starts errgroup.Group
	for range 2 {
		starts.Go(func() error { return openAt(t.Context(), t, url) })
	}
	require.Eventually(t, func() bool {
		var asking int
		err := conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND query ~ 'pg_try_advisory_lock' AND pid <> pg_backend_pid()`).Scan(&asking)
		return err == nil && asking == 2
	}, time.Minute, 10*time.Millisecond, "both starts ask for the lock")
	require.False(t, ask[bool](t, conn, `SELECT to_regclass('tasks') IS NOT NULL`), "a start went on without the lock")

	_, err = conn.Exec(t.Context(), `SELECT pg_advisory_unlock($1)`, lock.DefaultLockID)

	require.NoError(t, err)
	require.NoError(t, starts.Wait())
	require.Equal(t, 1, ask[int](t, conn, `SELECT count(*) FROM goose_db_version WHERE version_id = 1`))
}

func TestARefusedStatementIsNamedByFileAndLine(t *testing.T) {
	t.Parallel()
	const first = "-- +goose Up\n\n-- One.\nCREATE TABLE one (\n    n int\n);\n"
	for name, tt := range map[string]struct{ rest, want string }{
		"where the server points, inside a statement": {"CREATE TABLE two (\n    ä text DEFAULT 'ö', m nothing\n);\n", `00001_a.sql:8: ERROR: type "nothing" does not exist`},
		"the statement, where the server is silent":   {"\n-- Again.\nCREATE TABLE one (\n    m int\n);\nSELECT 1;\n", `00001_a.sql:9: ERROR: relation "one" already exists`},
		"inside a function": {"-- +goose StatementBegin\nCREATE FUNCTION f() RETURNS int LANGUAGE plpgsql AS $$\nBEGIN\n    RETURN 1;\n    RETRUN 2;\nEND $$;\n-- +goose StatementEnd\n",
			`00001_a.sql:11: ERROR: syntax error at or near "RETRUN"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := pgtest.URL(t)
			files := fstest.MapFS{"00001_a.sql": {Data: []byte(first + tt.rest)}}

			err := store.MigrateForTest(t.Context(), url, files)

			require.ErrorContains(t, err, tt.want)
			require.False(t, ask[bool](t, owner(t, url), `SELECT to_regclass('one') IS NOT NULL`), "the statements before it were kept")
		})
	}
}

// A database that another text of a migration has made is refused, also where nothing is noted of it, and nothing is changed.
func TestAnotherTextOfAMigrationIsRefused(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]string{
		"another text": `UPDATE migration_digests SET sha256 = repeat('0', 64) WHERE version = 1`,
		"of nothing":   `DELETE FROM migration_digests WHERE version = 1`,
		"of before":    `DROP TABLE migration_digests`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := pgtest.URL(t)
			require.NoError(t, openAt(t.Context(), t, url))
			conn := owner(t, url)
			_, err := conn.Exec(t.Context(), change)
			require.NoError(t, err)
			made := ask[string](t, conn, schemaNow)

			err = openAt(t.Context(), t, url)

			require.Equal(t, commands.Conflict, commands.CodeOf(err))
			require.ErrorContains(t, err, "the database was made by another text of migration 00001 than this program has")
			require.Equal(t, made, ask[string](t, conn, schemaNow))
		})
	}
}

// What a migration does and the digest of its text are one transaction.
func TestAMigrationNotesItsText(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	files := fstest.MapFS{"00001_a.sql": {Data: []byte("-- +goose Up\nCREATE TABLE one (n int);\n")}}
	require.NoError(t, store.MigrateForTest(t.Context(), url, files))
	files["00002_b.sql"] = &fstest.MapFile{Data: []byte("-- +goose Up\nCREATE TABLE two (n int);\nCREATE TABLE one (n int);\n")}
	require.Error(t, store.MigrateForTest(t.Context(), url, files))
	conn := owner(t, url)
	require.Equal(t, "1", ask[string](t, conn, `SELECT string_agg(version::text, ',') FROM migration_digests`))
	files["00001_a.sql"].Data = append(files["00001_a.sql"].Data, "-- A comment.\n"...)
	files["00002_b.sql"].Data = []byte("-- +goose Up\nCREATE TABLE two (n int);\n")

	err := store.MigrateForTest(t.Context(), url, files)

	require.ErrorContains(t, err, "another text of migration 00001")
	require.False(t, ask[bool](t, conn, `SELECT to_regclass('two') IS NOT NULL`), "a later one was run all the same")
}
