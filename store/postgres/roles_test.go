package postgres_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/store/postgres"
)

// connectAs connects to the server of c as role, with password or with what is kept for it.
func connectAs(t *testing.T, c *postgres.Cluster, role, password string, params map[string]string) (*pgx.Conn, error) {
	t.Helper()
	cfg, err := pgx.ParseConfig(strings.Replace(c.URL(), "spawnmesh@", role+"@", 1))
	require.NoError(t, err)
	if password != "" {
		cfg.Password = password
	}
	for name, value := range params {
		cfg.RuntimeParams[name] = value
	}
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	if err == nil {
		t.Cleanup(func() { _ = conn.Close(t.Context()) })
	}
	return conn, err
}

func TestWhoMayConnect(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	c := startCluster(t, postgres.Config{Dir: dir})
	replication := map[string]string{"replication": "true"}

	for name, tt := range map[string]struct {
		role, password string
		params         map[string]string
		refused        string
	}{
		"the program":                    {role: "spawnmesh"},
		"the program by another word":    {role: "spawnmesh", password: "guessed", refused: "password authentication failed"},
		"the superuser without a word":   {role: "mesh", refused: "password authentication failed"},
		"the superuser by a word":        {role: "mesh", password: "mesh", refused: "password authentication failed"},
		"the application without a word": {role: "spawnmesh_app", refused: "password authentication failed"},
		"a stranger":                     {role: "stranger", password: "guessed", refused: "password authentication failed"},
		"a backup":                       {role: "spawnmesh_backup", params: replication},
		"a backup that wants the tables": {role: "spawnmesh_backup", refused: `permission denied for database "mesh"`},
		"the program as a backup":        {role: "spawnmesh", params: replication, refused: "must be superuser or replication role"},
	} {
		_, err := connectAs(t, c, tt.role, tt.password, tt.params)
		if tt.refused == "" {
			require.NoError(t, err, name)
		} else {
			require.ErrorContains(t, err, tt.refused, name)
		}
	}
	hba, err := os.ReadFile(filepath.Join(dir, "pg", "pg_hba.conf"))
	require.NoError(t, err)
	for line := range strings.Lines(string(hba)) {
		require.Regexp(t, `^local .* scram-sha-256\n$`, line)
	}
}

// What a superuser could do to the files and programs of the machine, the program's role cannot.
func TestTheProgramIsNoSuperuser(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	c := startCluster(t, postgres.Config{Dir: dir})
	query(t, c, "CREATE TABLE lines (line text)")
	file := filepath.Join(dir, "file")

	for _, sql := range []string{
		`COPY lines FROM PROGRAM 'id'`,
		`COPY lines TO PROGRAM 'cat'`,
		`COPY lines FROM '/etc/passwd'`,
		`COPY lines TO '` + file + `'`,
		`SELECT lo_import('/etc/passwd')`,
		`SELECT lo_export(1, '` + file + `')`,
		`SELECT pg_read_file('/etc/passwd')`,
		`SELECT pg_ls_dir('/')`,
		`CREATE LANGUAGE other HANDLER plpgsql_call_handler`,
		`CREATE FUNCTION run(cstring) RETURNS int LANGUAGE c AS 'libc.so.6', 'system'`,
		`CREATE FUNCTION run(text) RETURNS text LANGUAGE internal AS 'pg_read_file_all'`,
		`LOAD '` + file + `.so'`,
		`ALTER SYSTEM SET archive_command = 'id'`,
		`SET session_preload_libraries = 'x'`,
		`CREATE ROLE other SUPERUSER`,
		`CREATE DATABASE other`,
		`ALTER ROLE spawnmesh SUPERUSER`,
		`GRANT pg_execute_server_program TO spawnmesh`,
		`GRANT mesh TO spawnmesh`,
		`SET ROLE mesh`,
		`SET SESSION AUTHORIZATION mesh`,
		`SET ROLE pg_read_server_files`,
		`SELECT rolpassword FROM pg_authid`,
		`SELECT pg_create_physical_replication_slot('x')`,
		`SELECT pg_reload_conf()`,
	} {
		conn, err := pgx.Connect(t.Context(), c.URL())
		require.NoError(t, err)
		_, err = conn.Exec(t.Context(), sql)
		var refused *pgconn.PgError
		require.ErrorAs(t, err, &refused, sql)
		require.Equal(t, "42501", refused.Code, "%s: %v", sql, err) // insufficient privilege
		require.NoError(t, conn.Close(t.Context()))
	}
	require.NoFileExists(t, file)
	require.Equal(t, "spawnmesh spawnmesh_app,spawnmesh_engine", query(t, c, `SELECT current_user || ' ' || string_agg(rolname, ',' ORDER BY rolname)
		FROM pg_roles WHERE pg_has_role(rolname, 'MEMBER') AND rolname NOT IN (current_user, 'pg_database_owner')`))
	require.Equal(t, "spawnmesh", query(t, c, `SELECT pg_get_userbyid(datdba) FROM pg_database WHERE datname = current_database()`))
}

// What an earlier version made belongs to the superuser, who was also the program's role.
func TestAClusterOfAnEarlierVersionIsChangedOver(t *testing.T) {
	t.Parallel()
	cfg := postgres.Config{Dir: newDir(t)}
	require.NoError(t, postgres.Upkeep(t.Context(), cfg, `CREATE ROLE maker SUPERUSER LOGIN PASSWORD 'maker'`))
	c := startCluster(t, cfg)
	earlier, err := connectAs(t, c, "maker", "maker", nil)
	require.NoError(t, err)
	for _, sql := range []string{
		`SET SESSION AUTHORIZATION mesh`,
		`CREATE TABLE kept (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, n serial, line text)`,
		`INSERT INTO kept (line) VALUES ('x')`,
		`CREATE VIEW seen AS SELECT * FROM kept`,
		`CREATE SEQUENCE numbers`,
		`CREATE TYPE state AS ENUM ('queued')`,
		`CREATE DOMAIN word AS text`,
		`CREATE TYPE pair AS (a int, b int)`,
		`CREATE SCHEMA other`,
		`CREATE TABLE other.kept (id int)`,
		`CREATE FUNCTION prune() RETURNS bigint LANGUAGE sql SECURITY DEFINER AS 'WITH gone AS (DELETE FROM kept RETURNING 1) SELECT count(*) FROM gone'`,
		`ALTER TABLE kept ENABLE ROW LEVEL SECURITY`,
		`ALTER TABLE kept FORCE ROW LEVEL SECURITY`,
		`CREATE POLICY pruning ON kept TO CURRENT_USER USING (true)`,
	} {
		_, err := earlier.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	require.NoError(t, c.Close(t.Context()))
	require.NoError(t, postgres.Upkeep(t.Context(), cfg,
		`ALTER DATABASE mesh OWNER TO mesh`,
		`DROP OWNED BY spawnmesh, spawnmesh_backup`,
		`DROP ROLE spawnmesh`,
		`DROP ROLE spawnmesh_backup`))
	require.NoError(t, os.Remove(filepath.Join(cfg.Dir, "keys", "pgpass")))

	c = startCluster(t, cfg)

	require.Empty(t, query(t, c, `SELECT relname FROM pg_class WHERE oid >= 16384 AND pg_get_userbyid(relowner) = 'mesh' AND relkind <> 't'`))
	require.Empty(t, query(t, c, `SELECT typname FROM pg_type WHERE oid >= 16384 AND pg_get_userbyid(typowner) = 'mesh'`))
	require.Empty(t, query(t, c, `SELECT nspname FROM pg_namespace WHERE oid >= 16384 AND pg_get_userbyid(nspowner) = 'mesh'`))
	require.Empty(t, query(t, c, `SELECT proname FROM pg_proc WHERE oid >= 16384 AND pg_get_userbyid(proowner) = 'mesh'`))
	require.Equal(t, "spawnmesh", query(t, c, `SELECT pg_get_userbyid(relowner) FROM pg_class WHERE oid = 'seen'::regclass`))
	require.Equal(t, "1", query(t, c, `SELECT prune()`), "as the owner, whom the policy names")
	require.Equal(t, "off", query(t, c, `SHOW is_superuser`))
}

func TestPasswordsThatAreNotTheDatabases(t *testing.T) {
	t.Parallel()
	cfg := postgres.Config{Dir: newDir(t)}
	c := startCluster(t, cfg)
	query(t, c, "CREATE TABLE kept AS SELECT 42 AS n")
	require.NoError(t, c.Close(t.Context()))
	file := filepath.Join(cfg.Dir, "keys", "pgpass")
	require.NoError(t, os.WriteFile(file, []byte("*:*:*:spawnmesh:other\n"), 0o600))

	_, wrong := postgres.Start(t.Context(), cfg)
	require.NoError(t, os.Chmod(file, 0o640))
	_, open := postgres.Start(t.Context(), cfg)
	require.NoError(t, os.Remove(file))
	c = startCluster(t, cfg)

	require.ErrorContains(t, wrong, "the password in "+file+" is not the database's")
	require.ErrorContains(t, wrong, "remove that file, and a start makes new ones")
	require.ErrorContains(t, open, "has mode 0640: others can use it; run: chmod 600 "+file)
	require.Equal(t, "42", query(t, c, "SELECT n FROM kept"))
}

// The file of the passwords is looked at as key files are.
func TestAPasswordFileThatOthersCouldHavePutThere(t *testing.T) {
	t.Parallel()
	cfg := postgres.Config{Dir: newDir(t)}
	require.NoError(t, startCluster(t, cfg).Close(t.Context()))
	keys := filepath.Join(cfg.Dir, "keys")
	file, other := filepath.Join(keys, "pgpass"), filepath.Join(keys, "other")
	for name, tt := range map[string]struct {
		change func()
		want   string
	}{
		"a link":                   {func() { require.NoError(t, os.Symlink(other, file)) }, "is a symbolic link"},
		"a directory":              {func() { require.NoError(t, os.Mkdir(file, 0o700)) }, "is not a regular file"},
		"one that can be executed": {func() { require.NoError(t, os.WriteFile(file, nil, 0o700)); require.NoError(t, os.Chmod(file, 0o700)) }, "has mode 0700"},
		"a directory of others":    {func() { require.NoError(t, os.Rename(other, file)); require.NoError(t, os.Chmod(keys, 0o777)) }, "can be written by"},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, os.Rename(file, other))
			t.Cleanup(func() {
				require.NoError(t, os.Chmod(keys, 0o700))
				if _, err := os.Lstat(other); err == nil {
					require.NoError(t, os.RemoveAll(file))
					require.NoError(t, os.Rename(other, file))
				}
			})
			tt.change()

			_, err := postgres.Start(t.Context(), cfg)

			require.ErrorContains(t, err, tt.want)
			require.ErrorContains(t, err, "reading the passwords of the database")
		})
	}
}

// The error holds what the server program has printed, and the operator lets it print every statement.
func TestAChangeOverThatFailsTellsNoVerifier(t *testing.T) {
	t.Parallel()
	cfg := postgres.Config{Dir: newDir(t)}
	require.NoError(t, startCluster(t, cfg).Close(t.Context()))
	require.NoError(t, postgres.Upkeep(t.Context(), cfg, `ALTER DATABASE template1 RENAME TO gone`))
	require.NoError(t, os.WriteFile(filepath.Join(cfg.Dir, "pg", "user.conf"), []byte("log_statement = 'all'\nlog_min_duration_statement = 0\n"), 0o644))
	file := filepath.Join(cfg.Dir, "keys", "pgpass")
	require.NoError(t, os.Remove(file))

	_, err := postgres.Start(t.Context(), cfg)

	require.ErrorContains(t, err, `database "template1" does not exist`)
	require.NotContains(t, err.Error(), "SCRAM-SHA-256$")
	require.NoFileExists(t, file, "they are kept when they are the database's")
}
