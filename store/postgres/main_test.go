package postgres_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
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

// instanceDir makes the test binary run an instance there instead of tests, so that a test can kill it.
const instanceDir = "SPAWNMESH_TEST_INSTANCE_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(instanceDir); dir != "" {
		if err := runInstance(dir); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// runInstance says the server's process id when it is ready, and stops when standard input ends.
func runInstance(dir string) error {
	ctx := context.Background()
	lock, err := postgres.Lock(dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	c, err := postgres.Start(ctx, postgres.Config{Dir: dir})
	if err != nil {
		return err
	}
	fmt.Println("ready", c.Pid())
	_, _ = io.Copy(io.Discard, os.Stdin)
	return c.Close(ctx)
}

// An instance is a process of its own that runs a private server.
type instance struct {
	cmd    *exec.Cmd
	stdout *bufio.Reader
	server int // process id, once ready has returned
}

// startInstance starts an instance without waiting for its server. Both have ended when the test has.
func startInstance(t *testing.T, dir string) *instance {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), instanceDir+"="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	i := &instance{cmd: cmd, stdout: bufio.NewReader(stdout)}
	t.Cleanup(func() {
		stdin.Close()
		_ = cmd.Wait() // killed, or stopped in order by the end of its input
		eventually(t, "its server has ended", func() bool {
			_, err := os.Stat(filepath.Join(dir, "pg", "postmaster.pid"))
			return os.IsNotExist(err)
		})
	})
	return i
}

func (i *instance) ready(t *testing.T) {
	t.Helper()
	line, err := i.stdout.ReadString('\n')
	require.NoError(t, err)
	_, err = fmt.Sscanf(line, "ready %d", &i.server)
	require.NoError(t, err, "the instance said %q", line)
}

// newDir returns an empty directory that an unprivileged server can reach, in memory if there is such a place.
func newDir(t *testing.T) string {
	t.Helper()
	base := "/dev/shm"
	if _, err := os.Stat(base); err != nil {
		base = ""
	}
	dir, err := os.MkdirTemp(base, "spawnmesh-postgres-test-")
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o711))
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

// startCluster starts a private server here; it is closed when the test ends.
func startCluster(t *testing.T, cfg postgres.Config) *postgres.Cluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := postgres.Start(ctx, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close(context.Background())) })
	return c
}

// seesAll makes the program's role of a cluster that does not run a superuser, for what only such a one may look at.
func seesAll(t *testing.T, cfg postgres.Config) postgres.Config {
	t.Helper()
	require.NoError(t, postgres.Upkeep(t.Context(), cfg, "ALTER ROLE spawnmesh SUPERUSER"))
	return cfg
}

// query runs one statement on a connection of its own and returns its first value as text.
func query(t *testing.T, c *postgres.Cluster, sql string, args ...any) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), c.URL())
	require.NoError(t, err)
	defer conn.Close(t.Context())
	rows, err := conn.Query(t.Context(), sql, args...)
	require.NoError(t, err)
	values, err := pgx.CollectRows(rows, pgx.RowTo[any])
	require.NoError(t, err)
	if len(values) == 0 {
		return ""
	}
	return fmt.Sprint(values[0])
}

// eventually polls until ok holds. It does so on the test's own goroutine, so ok may use require.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		require.True(t, time.Now().Before(deadline), "still waiting: %s", what)
	}
}

// tree describes everything below dir, to show that nothing has changed.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	require.NoError(t, filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		fmt.Fprintln(&b, path, info.Mode(), info.ModTime().UnixNano(), info.Sys().(*syscall.Stat_t).Uid)
		return nil
	}))
	return b.String()
}

func ownerOf(t *testing.T, path string) int {
	t.Helper()
	info, err := os.Stat(path)
	require.NoError(t, err)
	return int(info.Sys().(*syscall.Stat_t).Uid)
}
