package postgres_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/store/postgres"
)

func TestDataOutlivesAStop(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	began := time.Now()
	first := startCluster(t, postgres.Config{Dir: dir})
	t.Logf("cold start %v", time.Since(began))
	query(t, first, "CREATE TABLE kept AS SELECT 42 AS n")
	require.NoError(t, first.Close(t.Context()))
	require.Zero(t, first.Pid())

	began = time.Now()
	second := startCluster(t, postgres.Config{Dir: dir})
	t.Logf("warm start %v", time.Since(began))

	require.Equal(t, "42", query(t, second, "SELECT n FROM kept"))
	require.Equal(t, first.URL(), second.URL())
	require.NoError(t, first.Close(t.Context()), "closing again")
	require.Positive(t, second.Pid())
}

func TestServerRunsWithOurSettings(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	c := startCluster(t, seesAll(t, postgres.Config{Dir: dir, Settings: map[string]string{
		"work_mem": "5MB", "application_name": `it's a \ name`}}))

	for name, want := range map[string]string{
		"listen_addresses": "", "unix_socket_directories": `"` + filepath.Join(dir, "run") + `"`,
		"unix_socket_permissions": "0700", "fsync": "on", "full_page_writes": "on", "synchronous_commit": "on",
		"shared_buffers": "16MB", "max_pred_locks_per_transaction": "10", "jit": "off", "max_wal_size": "256MB", "wal_segment_size": "1MB",
		"autovacuum_max_workers": "1", "TimeZone": "UTC", "client_connection_check_interval": "10s",
		"data_checksums": "on", "server_encoding": "UTF8", "idle_in_transaction_session_timeout": "1min",
		"max_connections": "260", "work_mem": "5MB", "log_min_duration_statement": "1s", "log_parameter_max_length": "0",
	} {
		require.Equal(t, want, query(t, c, "SELECT current_setting($1)", name), name)
	}
	compression := "pglz"
	if query(t, c, "SELECT array_to_string(enumvals, ' ') ~ 'lz4' FROM pg_settings WHERE name = 'wal_compression'") == "true" {
		compression = "lz4"
	}
	require.Equal(t, compression, query(t, c, "SHOW wal_compression"))
	require.Equal(t, `it's a \ name`, query(t, c,
		"SELECT boot.setting FROM pg_file_settings boot WHERE name = 'application_name'"))
	require.Equal(t, "æøå", query(t, c, "SELECT lower('ÆØÅ')"))
	require.Equal(t, "B,a,Ä", query(t, c,
		"SELECT string_agg(w, ',' ORDER BY w) FROM unnest('{a,B,Ä}'::text[]) w"), "code-point order")
}

func TestOperatorsFileGoesOverOurs(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	c := startCluster(t, postgres.Config{Dir: dir, Settings: map[string]string{"work_mem": "5MB"}})
	require.Equal(t, "5MB", query(t, c, "SHOW work_mem"))
	require.NoError(t, c.Close(t.Context()))
	conf := filepath.Join(dir, "pg", "user.conf")
	require.NoError(t, os.WriteFile(conf, []byte("work_mem = 6MB\nport = 1\nunix_socket_directories = '/tmp'\nlisten_addresses = '127.0.0.1'\n"), 0o644))

	c = startCluster(t, postgres.Config{Dir: dir})

	require.Equal(t, "6MB", query(t, c, "SHOW work_mem"))
	require.Equal(t, "5432", query(t, c, "SHOW port"), "clients must find the socket")
	require.Empty(t, query(t, c, "SHOW listen_addresses"), "the socket is the only way in")
}

func TestSettingThatIsNoneIsRefused(t *testing.T) {
	t.Parallel()
	for name, settings := range map[string]map[string]string{
		"a line break in the value": {"work_mem": "1MB'\nfsync = off"},
		"a line break in the name":  {"work_mem\nfsync": "off"},
		"an empty name":             {"": "x"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(newDir(t), "d")

			_, err := postgres.Start(t.Context(), postgres.Config{Dir: dir, Settings: settings})

			require.ErrorContains(t, err, "not a setting name")
			require.NoDirExists(t, dir)
		})
	}
}

func TestDirectoriesAreClosedToOthers(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(newDir(t), "deep", "data")
	if os.Geteuid() == 0 {
		require.NoError(t, os.Mkdir(filepath.Dir(dir), 0o711))
	}
	startCluster(t, postgres.Config{Dir: dir})

	own := os.FileMode(0o700)
	if os.Geteuid() == 0 {
		own = 0o711 // the server's user passes through
	}
	for path, want := range map[string]os.FileMode{"": own, "pg": 0o700, "run": 0o700, "keys": 0o700, "keys/pgpass": 0o600, "postgres.log": 0o600, "pg/mesh.conf": 0o600} {
		info, err := os.Stat(filepath.Join(dir, path))
		require.NoError(t, err)
		require.Equal(t, want, info.Mode().Perm(), path)
	}
}

func TestOddPathsWork(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]string{
		"blanks and quotes":     `it's "here" \ there`,
		"a comma":               `one,two`,
		"a plus and percent":    `a+b %20 &host=x #y`,
		"too long for a socket": strings.Repeat("long/", 24),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(newDir(t), path)
			c := startCluster(t, seesAll(t, postgres.Config{Dir: dir}))

			require.Equal(t, filepath.Join(dir, "pg"), query(t, c, "SHOW data_directory"))
			short := strings.Contains(c.URL(), "host=%2Ftmp%2Fmesh-")
			require.Equal(t, len(path) > 100 || strings.Contains(path, ","), short, c.URL())
			require.NoError(t, c.Close(t.Context()))
			if short {
				cfg, err := pgx.ParseConfig(c.URL())
				require.NoError(t, err)
				require.NoDirExists(t, cfg.Host, "the short socket directory goes with the server")
				require.NoError(t, os.Symlink(t.TempDir(), cfg.Host), "somebody else takes the name")
				again := startCluster(t, postgres.Config{Dir: dir})
				require.NotEqual(t, c.URL(), again.URL())
				guest, err := postgres.Visit(t.Context(), dir)
				require.NoError(t, err)
				require.Equal(t, again.URL(), guest.URL())
				require.NoError(t, guest.Close())
				require.NoError(t, os.Remove(cfg.Host))
			}
		})
	}
}

func TestLongLogIsPutAside(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	log := filepath.Join(dir, "postgres.log")
	require.NoError(t, os.WriteFile(log, make([]byte, 8<<20+1), 0o600))

	startCluster(t, postgres.Config{Dir: dir})

	aside, err := os.Stat(log + ".1")
	require.NoError(t, err)
	require.EqualValues(t, 8<<20+1, aside.Size())
	text, err := os.ReadFile(log)
	require.NoError(t, err)
	require.Contains(t, string(text), "database system is ready to accept connections")
}

func TestCloseEndsOpenTransactions(t *testing.T) {
	t.Parallel()
	c := startCluster(t, postgres.Config{Dir: newDir(t)})
	conn, err := pgx.Connect(t.Context(), c.URL())
	require.NoError(t, err)
	defer conn.Close(t.Context())
	_, err = conn.Exec(t.Context(), "BEGIN; CREATE TABLE unfinished ()")
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()

	require.NoError(t, c.Close(ctx))

	_, err = conn.Exec(t.Context(), "COMMIT")
	require.Error(t, err)
}

func TestInterruptedStartLeavesNoServer(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	require.NoError(t, startCluster(t, postgres.Config{Dir: dir}).Close(t.Context()))
	signal := filepath.Join(dir, "pg", "standby.signal") // with it the server waits for ever for a primary
	require.NoError(t, os.WriteFile(signal, nil, 0o644))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { // as soon as it waits
		for ctx.Err() == nil {
			if raw, _ := os.ReadFile(filepath.Join(dir, "postgres.log")); strings.Contains(string(raw), "entering standby mode") {
				cancel()
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()

	_, err := postgres.Start(ctx, postgres.Config{Dir: dir, Settings: map[string]string{"hot_standby": "off"}})

	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "waiting for the server to be ready")
	require.ErrorContains(t, err, "entering standby mode", "the end of the server's log")
	require.NoFileExists(t, filepath.Join(dir, "pg", "postmaster.pid"))
	require.NoError(t, os.Remove(signal))
	startCluster(t, postgres.Config{Dir: dir})
}
