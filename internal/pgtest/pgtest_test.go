package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/store/postgres"
)

func TestMain(m *testing.M) { Main(m) }

func connect(t *testing.T, address string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), address)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

func databases(t *testing.T, conn *pgx.Conn) []string {
	t.Helper()
	rows, err := conn.Query(t.Context(), "SELECT datname FROM pg_database")
	require.NoError(t, err)
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return names
}

func TestEveryURLIsADatabaseOfItsOwn(t *testing.T) {
	t.Parallel()
	first, second := connect(t, URL(t)), connect(t, URL(t))
	_, err := first.Exec(t.Context(), "CREATE TABLE mine ()")
	require.NoError(t, err)

	var tables int
	err = second.QueryRow(t.Context(), "SELECT count(*) FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')").Scan(&tables)

	require.NoError(t, err)
	require.Zero(t, tables)
}

func TestDatabaseGoesWithItsTest(t *testing.T) {
	t.Parallel()
	outside := connect(t, URL(t))
	var inside *pgx.Conn
	t.Run("Ünter/test with a name that is longer than any name which a database can have", func(t *testing.T) {
		var err error
		inside, err = pgx.Connect(t.Context(), URL(t))
		require.NoError(t, err)
		require.Contains(t, databases(t, outside), inside.Config().Database)
	})

	require.Regexp(t, `^t\d+_testdatabasegoeswithitstest_nter_test_with`, inside.Config().Database)
	require.NotContains(t, databases(t, outside), inside.Config().Database)
	require.Error(t, inside.Ping(t.Context()), "it was still connected")
}

func TestManyTestsAtOnce(t *testing.T) {
	for i := range 8 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			conn := connect(t, URL(t))
			var limit string
			require.NoError(t, conn.QueryRow(t.Context(), "SHOW max_connections").Scan(&limit))
			require.Equal(t, "200", limit)
		})
	}
}

func TestClusterOfOnesOwnCanBeKilled(t *testing.T) {
	t.Parallel()
	others := connect(t, URL(t))
	c := Cluster(t)
	killed := c.Pid()

	require.NoError(t, syscall.Kill(killed, syscall.SIGKILL))

	require.Eventually(t, func() bool { return c.Pid() != 0 && c.Pid() != killed }, 20*time.Second, 5*time.Millisecond)
	require.NoError(t, others.Ping(t.Context()))
}

func TestErrorWithoutProgramsSaysWhatToRun(t *testing.T) {
	t.Parallel()

	text := explain(fmt.Errorf("opening: %w", &postgres.NotFoundError{Looked: []string{"PATH: no postgres"}}))

	first, rest, _ := strings.Cut(text, "\n")
	require.Equal(t, "this test needs PostgreSQL server programs: run DATABASE_URL= scripts/ensure-postgres", first)
	require.Contains(t, rest, "looked at:\n  PATH: no postgres")
}

// inner makes TestInner do something; TestNothingIsLeft runs this binary again with it.
const inner = "SPAWNMESH_PGTEST_INNER"

func TestInner(t *testing.T) {
	switch os.Getenv(inner) {
	case "pass":
		URL(t)
		fmt.Println("dir:" + shared.instance.dir)
	case "kill":
		URL(t)
		fmt.Println("dir:" + shared.instance.dir)
		require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGKILL))
	}
}

func runInner(t *testing.T, how string) (dir string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestInner$", "-test.v")
	cmd.Env = append(os.Environ(), inner+"="+how)
	out, err := cmd.Output()
	require.Equal(t, how == "kill", err != nil, "%v\n%s", err, out)
	_, dir, _ = strings.Cut(string(out), "dir:")
	dir, _, _ = strings.Cut(dir, "\n")
	require.Contains(t, dir, dirPrefix)
	return dir
}

func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	passed, killed := runInner(t, "pass"), runInner(t, "kill")
	require.NoDirExists(t, passed)
	require.DirExists(t, killed)
	require.Eventually(t, func() bool {
		_, err := os.Stat(filepath.Join(killed, "pg", "postmaster.pid"))
		return os.IsNotExist(err)
	}, 20*time.Second, 5*time.Millisecond, "the server ends with its test binary")

	sweep(filepath.Dir(killed))
	require.DirExists(t, killed, "too new to tell from one that is not locked yet")
	long := time.Now().Add(-time.Hour)
	require.NoError(t, os.Chtimes(killed, long, long))
	sweep(filepath.Dir(killed))
	require.NoDirExists(t, killed)
}

func BenchmarkURL(b *testing.B) {
	URL(b)
	for b.Loop() {
		URL(b)
	}
}

func TestPreparedDatabasesAreCopies(t *testing.T) {
	t.Parallel()
	var times int
	prepare := func(ctx context.Context, address string) error {
		times++
		conn, err := pgx.Connect(ctx, address)
		if err != nil {
			return err
		}
		_, err = conn.Exec(ctx, "CREATE TABLE numbers AS SELECT 1 AS n")
		return errors.Join(err, conn.Close(ctx))
	}
	first, second := connect(t, Prepared(t, prepare)), connect(t, Prepared(t, prepare))

	_, err := first.Exec(t.Context(), "INSERT INTO numbers VALUES (2)")

	require.NoError(t, err)
	var n int
	require.NoError(t, second.QueryRow(t.Context(), "SELECT sum(n) FROM numbers").Scan(&n))
	require.Equal(t, 1, n)
	require.Equal(t, 1, times)
}
