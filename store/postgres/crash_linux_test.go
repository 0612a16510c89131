package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/store/postgres"
)

func TestPoolGoesOnAfterTheServerIsKilled(t *testing.T) {
	t.Parallel()
	c := startCluster(t, postgres.Config{Dir: newDir(t)})
	pool, err := pgxpool.New(t.Context(), c.URL())
	require.NoError(t, err)
	defer pool.Close()
	_, err = pool.Exec(t.Context(), "CREATE TABLE kept (n int PRIMARY KEY)")
	require.NoError(t, err)
	acknowledged := writeUntilStopped(t, pool)

	for range 2 {
		rows := query(t, c, "SELECT count(*) FROM kept")
		eventually(t, "more rows", func() bool { return query(t, c, "SELECT count(*) FROM kept") != rows })
		killed := c.Pid()
		require.NoError(t, syscall.Kill(killed, syscall.SIGKILL))

		began := time.Now()
		eventually(t, "the pool reaches a new server", func() bool {
			now := c.Pid() // an old backend may still answer for a moment
			return now != 0 && now != killed && pool.Ping(t.Context()) == nil
		})
		t.Logf("new server after %v", time.Since(began))
	}

	require.NoError(t, c.Err())
	written := acknowledged()
	require.NotEmpty(t, written)
	missing := query(t, c, "SELECT count(*) FROM unnest($1::int[]) AS want (n) WHERE n NOT IN (SELECT n FROM kept)", written)
	require.Equal(t, "0", missing, "of %d acknowledged rows", len(written))
}

// writeUntilStopped has four writers commit one row after the other, whatever happens to the server. The function it
// returns stops them and says which rows were acknowledged.
func writeUntilStopped(t *testing.T, pool *pgxpool.Pool) (acknowledged func() []int) {
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	var rows []int
	var writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			for n := w; ctx.Err() == nil; n += 4 {
				if _, err := pool.Exec(ctx, "INSERT INTO kept VALUES ($1)", n); err == nil {
					mu.Lock()
					rows = append(rows, n)
					mu.Unlock()
				}
			}
		})
	}
	stop := func() []int { cancel(); writers.Wait(); return rows }
	t.Cleanup(func() { stop() })
	return stop
}

// A backend that computes does not notice that its postmaster is gone, and keeps the shared memory of the old server.
func TestRestartEndsABackendThatIsBusy(t *testing.T) {
	t.Parallel()
	c := startCluster(t, postgres.Config{Dir: newDir(t)})
	conn, err := pgx.Connect(t.Context(), c.URL())
	require.NoError(t, err)
	busy := make(chan error)
	go func() {
		_, err := conn.Exec(context.WithoutCancel(t.Context()), "SELECT count(*) FROM generate_series(1, 1e12)")
		busy <- err
	}()
	eventually(t, "the query runs", func() bool {
		return query(t, c, "SELECT state FROM pg_stat_activity WHERE pid = $1", conn.PgConn().PID()) == "active"
	})
	killed := c.Pid()

	require.NoError(t, syscall.Kill(killed, syscall.SIGKILL))

	eventually(t, "a new server", func() bool { return c.Pid() != 0 && c.Pid() != killed })
	require.Error(t, <-busy)
	require.Equal(t, "1", query(t, c, "SELECT 1"))
}

func TestServerThatKeepsDyingIsGivenUp(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	c := startCluster(t, postgres.Config{Dir: dir})
	mistake := filepath.Join(dir, "pg", "user.conf")
	require.NoError(t, os.WriteFile(mistake, []byte("shared_buffers = nonsense\n"), 0o644))
	select {
	case <-c.Failed():
		require.Fail(t, "failed while it runs")
	default:
	}

	require.NoError(t, syscall.Kill(c.Pid(), syscall.SIGKILL))

	select {
	case <-c.Failed():
	case <-time.After(30 * time.Second):
		require.Fail(t, "still trying")
	}
	require.ErrorContains(t, c.Err(), "after 5 restarts within 1m0s")
	require.ErrorContains(t, c.Err(), `invalid value for parameter "shared_buffers"`)
	require.Zero(t, c.Pid())
	require.NoError(t, c.Close(t.Context()))
	require.NoError(t, os.Remove(mistake))
	startCluster(t, postgres.Config{Dir: dir})
}

func TestNextStartAfterACrash(t *testing.T) {
	t.Parallel()
	for name, kill := range map[string]func(t *testing.T, i *instance){
		"the instance": func(t *testing.T, i *instance) {
			require.NoError(t, i.cmd.Process.Kill())
		},
		"the instance and its server": func(t *testing.T, i *instance) {
			// Stopped, the instance cannot act between the two.
			require.NoError(t, i.cmd.Process.Signal(syscall.SIGSTOP))
			require.NoError(t, syscall.Kill(i.server, syscall.SIGKILL))
			require.NoError(t, i.cmd.Process.Kill())
		},
		"the instance and every process of its server": func(t *testing.T, i *instance) {
			require.NoError(t, i.cmd.Process.Signal(syscall.SIGSTOP))
			for _, pid := range append(children(t, i.server), i.server) {
				if err := syscall.Kill(pid, syscall.SIGKILL); !errors.Is(err, syscall.ESRCH) {
					require.NoError(t, err)
				}
			}
			require.NoError(t, i.cmd.Process.Kill())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := newDir(t)
			i := startInstance(t, dir)
			i.ready(t)
			conn, err := pgx.Connect(t.Context(), urlOf(dir))
			require.NoError(t, err)
			_, err = conn.Exec(t.Context(), "CREATE TABLE kept AS SELECT 42 AS n")
			require.NoError(t, err)
			require.NoError(t, conn.Close(t.Context()))

			kill(t, i)
			_ = i.cmd.Wait() // killed
			lock, err := postgres.Lock(dir)
			require.NoError(t, err)
			defer lock.Close()
			began := time.Now()
			c := startCluster(t, postgres.Config{Dir: dir})

			t.Logf("next start after %v", time.Since(began))
			require.Equal(t, "42", query(t, c, "SELECT n FROM kept"))
		})
	}
}

func TestServerEndsWithItsInstance(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	i := startInstance(t, dir)
	i.ready(t)

	require.NoError(t, i.cmd.Process.Kill())

	began := time.Now()
	eventually(t, "the server is gone, and in order", func() bool {
		_, err := os.Stat(filepath.Join(dir, "pg", "postmaster.pid"))
		return os.IsNotExist(err)
	})
	t.Logf("gone after %v", time.Since(began))
}

// An interrupt from the terminal goes to the whole foreground group. The server must not take it for its own.
func TestInterruptOfTheGroupDoesNotReachTheServer(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	i := startInstance(t, dir)
	i.ready(t)

	group, err := syscall.Getpgid(i.server)

	require.NoError(t, err)
	require.Equal(t, i.server, group)
	require.NotEqual(t, i.cmd.Process.Pid, group)
}

func TestInitdbKilledHalfway(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	i := startInstance(t, dir)
	var initdb int
	eventually(t, "initdb is at work", func() bool {
		made, err := filepath.Glob(filepath.Join(dir, "pg.new-*", "base", "1", "*"))
		require.NoError(t, err)
		if pids := children(t, i.cmd.Process.Pid); len(pids) > 0 {
			initdb = pids[0]
		}
		return len(made) > 0 && initdb > 0
	})

	require.NoError(t, i.cmd.Process.Signal(syscall.SIGSTOP))
	for _, pid := range append(children(t, initdb), initdb) {
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	}
	require.NoError(t, i.cmd.Process.Kill())
	_ = i.cmd.Wait() // killed

	require.NoDirExists(t, filepath.Join(dir, "pg"))
	c := startCluster(t, postgres.Config{Dir: dir})
	require.Equal(t, "1", query(t, c, "SELECT 1"))
	remains, err := filepath.Glob(filepath.Join(dir, "pg.new-*"))
	require.NoError(t, err)
	require.Empty(t, remains)
}

func TestLockFilesThatNameTheWrongProcess(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) (pid int, alive func() bool){
		"a live process with the number of the dead server": func(t *testing.T) (int, func() bool) {
			cmd := exec.Command("sleep", "600")
			require.NoError(t, cmd.Start())
			t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
			return cmd.Process.Pid, func() bool { return state(cmd.Process.Pid) == "S" }
		},
		"a dead process that nobody has reaped": func(t *testing.T) (int, func() bool) {
			cmd := exec.Command("true")
			require.NoError(t, cmd.Start())
			t.Cleanup(func() { _ = cmd.Wait() })
			eventually(t, "a zombie", func() bool { return state(cmd.Process.Pid) == "Z" })
			return cmd.Process.Pid, func() bool { return true }
		},
		"nobody, because a crash left them empty": func(t *testing.T) (int, func() bool) {
			return 0, func() bool { return true }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := newDir(t)
			require.NoError(t, startCluster(t, postgres.Config{Dir: dir}).Close(t.Context()))
			pid, alive := start(t)
			text := fmt.Sprintf("%d\n%s/pg\n1700000000\n5432\n%s/run\n\n  1234567    987654\nready   \n", pid, dir, dir)
			if pid == 0 {
				text = ""
			}
			for _, file := range []string{"pg/postmaster.pid", "run/.s.PGSQL.5432.lock"} {
				require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
			}

			c := startCluster(t, postgres.Config{Dir: dir})

			require.Equal(t, "1", query(t, c, "SELECT 1"))
			require.True(t, alive(), "the process is none of our business")
		})
	}
}

// On a system without a parent-death signal the server outlives its instance.
func TestServerThatOutlivedItsInstanceIsReplaced(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	i := startInstance(t, dir)
	i.ready(t)
	// A stopped instance neither tells its server to end nor reaps it, so this also leaves a dead process behind.
	require.NoError(t, i.cmd.Process.Signal(syscall.SIGSTOP))
	t.Cleanup(func() { _ = i.cmd.Process.Kill() })
	var log syncBuffer

	c := startCluster(t, postgres.Config{Dir: dir, Log: slog.New(slog.NewTextHandler(&log, nil))})

	require.Contains(t, log.String(), "stopping a database server left over by an earlier instance")
	require.Equal(t, "Z", state(i.server))
	require.Equal(t, "1", query(t, c, "SELECT 1"))
}

// urlOf is the address of the cluster that another process runs in dir.
func urlOf(dir string) string {
	return "postgres://spawnmesh@/mesh?host=" + dir + "/run&port=5432&passfile=" + dir + "/keys/pgpass"
}

// children returns the processes that pid has started and not yet reaped.
func children(t *testing.T, pid int) []int {
	t.Helper()
	var pids []int
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // the thread has ended
		}
		require.NoError(t, err)
		for _, field := range strings.Fields(string(text)) {
			child, err := strconv.Atoi(field)
			require.NoError(t, err)
			pids = append(pids, child)
		}
	}
	return pids
}

// state returns a process's state letter, and "" when there is no such process.
func state(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	_, after, _ := bytes.Cut(text, []byte(") "))
	return string(after[:1])
}

type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
