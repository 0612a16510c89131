package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/fleet"
	"github.com/spawnmesh/spawnmesh/internal/pgtest"
	"github.com/spawnmesh/spawnmesh/store/backlog"
	"github.com/spawnmesh/spawnmesh/store/postgres"
)

// alone is somebody on a laptop: an empty directory and no instance.
func alone(t *testing.T) board { return board{fresh(t), backlog.MainWorkspace} }

func TestBacklogAloneTheSession(t *testing.T) {
	t.Parallel()
	b := alone(t)

	theSeedsSession(b)

	require.Contains(t, b.do("backlog", "audit", "A1"), "operator.completed", "no instance runs")

	require.NoFileExists(t, filepath.Join(b.dir, "pg", "postmaster.pid"), "no server is left behind")
}

func TestBacklogAloneSaysLittle(t *testing.T) {
	t.Parallel()
	b := alone(t)
	require.Equal(t, said{"A1\n", "a new instance was made in " + b.dir + "\n", 0}, b.run("backlog", "create", "--id", "A1", "--title", "first"))
	require.Equal(t, said{"A2\n", "", 0}, b.run("backlog", "create", "--id", "A2", "--title", "second"))
	quiet := alone(t).run("backlog", "create", "--id", "A1", "--title", "first", "--json")
	require.Zero(t, quiet.code)
	require.Empty(t, quiet.err, "a program reads one object and nothing else")
}

// Each of ten processes may be the one that makes keys, database and server, and
// none takes them away from another.
func TestBacklogAloneTenAtOnce(t *testing.T) {
	t.Parallel()
	b := alone(t)
	const n = 10
	results := make([]said, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { results[i] = b.run("backlog", "create", "--id", fmt.Sprint("K", i), "--title", "x") })
	}
	all.Wait()

	fresh := 0
	for i, s := range results {
		require.Zero(t, s.code, "%s", s.err)
		require.Equal(t, fmt.Sprintf("K%d\n", i), s.out)
		fresh += strings.Count(s.err, "a new instance was made")
	}
	require.Equal(t, 1, fresh)
	var claimed []claim
	b.read(&claimed, "backlog", "claim", "--batch", "100")
	require.Len(t, claimed, n)
}

// A claimer that waits is found by a task that somebody else creates, whether it
// runs the server or uses it, and also when the server changes hands meanwhile.
func TestBacklogAloneWaiting(t *testing.T) {
	t.Parallel()
	for name, ends := range map[string]syscall.Signal{"its owner leaves": syscall.SIGTERM, "its owner is killed": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := alone(t)
			b.do("quota", "create", "four", "--concurrent", "4") // a claim makes no instance
			owner := b.begin(b.in([]string{"backlog", "claim", "--owner", "owner", "--lane", "other", "--wait", "10m", "--json"})...)
			require.NoError(t, fleet.Poll(t.Context(), time.Minute, "waiting for the owner's server", func() (bool, error) {
				guest, err := postgres.Visit(t.Context(), b.dir)
				if errors.Is(err, postgres.ErrNotServing) || errors.Is(err, os.ErrNotExist) {
					return false, nil
				}
				return err == nil, errors.Join(err, guest.Close())
			}))
			b.create("gate", "--not-before", "2090-01-01")
			guest := b.begin(b.in([]string{"backlog", "claim", "--owner", "guest", "--wait", "10m", "--json"})...)
			b.waits()
			require.NoError(t, owner.cmd.Process.Signal(ends))
			owner.end()

			b.create("A1")

			var c claim
			s := guest.end()
			require.NoError(t, json.Unmarshal([]byte(s.out), &c), "%s%s", s.out, s.err)
			require.Equal(t, "A1", c.Key)
			require.Equal(t, "guest", b.show("A1").Owner)
		})
	}
}

// A hub that is started while a single command has the directory waits for it,
// and serves the next one as its guest.
func TestBacklogAloneMakesRoomForAHub(t *testing.T) {
	t.Parallel()
	b := alone(t)
	owner, err := postgres.LockBriefly(b.dir)
	require.NoError(t, err)
	tries := closings(t, filepath.Join(b.dir, "instance.lock"))
	ready := filepath.Join(b.dir, "ready")
	hub := b.begin("hub", "run", "--link", "127.0.0.1:0", "--ready-file", ready)
	tries.await()
	tries.await() // it found the directory in use, and looks again
	require.NoError(t, owner.Close())
	require.NoError(t, fleet.Poll(t.Context(), time.Minute, "waiting for the hub", func() (bool, error) {
		_, err := os.Stat(ready)
		return err == nil, ignoring(err, os.ErrNotExist)
	}))

	b.create("A1")

	require.NoError(t, hub.cmd.Process.Signal(syscall.SIGTERM))
	require.Zero(t, hub.end().code)
	require.Equal(t, "A1", b.claim("w").Key)
}

// An eye sees when somebody closes a file.
type eye struct {
	t    *testing.T
	file *os.File
}

func closings(t *testing.T, path string) eye {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	require.NoError(t, err)
	w := eye{t, os.NewFile(uintptr(fd), "inotify")}
	t.Cleanup(func() { w.file.Close() })
	_, err = unix.InotifyAddWatch(fd, path, unix.IN_CLOSE)
	require.NoError(t, err)
	return w
}

// await waits for the next one.
func (w eye) await() {
	w.t.Helper()
	require.NoError(w.t, w.file.SetReadDeadline(time.Now().Add(time.Minute)))
	_, err := w.file.Read(make([]byte, unix.SizeofInotifyEvent)) // of a watched file: no name follows
	require.NoError(w.t, err)
}

func ignoring(err, expected error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
}

// aServer is the URL of a database on a server of the test, which a superuser may look into.
func aServer(t *testing.T) (url string) {
	t.Helper()
	server := fresh(t)
	lock, err := postgres.Lock(server.dir)
	require.NoError(t, err)
	t.Cleanup(func() { lock.Close() })
	cfg := postgres.Config{Dir: server.dir}
	require.NoError(t, postgres.Upkeep(t.Context(), cfg, pgtest.AdminSQL))
	cluster, err := postgres.Start(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cluster.Close(context.WithoutCancel(t.Context()))) })
	return cluster.URL()
}

func TestBacklogInANamedDatabase(t *testing.T) {
	t.Parallel()
	url := aServer(t)
	b, other := alone(t), alone(t)
	b.env = []string{"DATABASE_URL=" + url}

	theSeedsSession(b)

	require.NoDirExists(t, filepath.Join(b.dir, "pg"))
	other.env = []string{"SPAWNMESH_DATABASE_URL=" + url, "DATABASE_URL=postgres://nobody@127.0.0.1:1/none"}
	s := other.run("backlog", "create", "--title", "x")
	require.Equal(t, exitConflict, s.code)
	require.Contains(t, s.err, "the database belongs to instance")
	require.NoDirExists(t, filepath.Join(other.dir, "keys"))
	itsUserIsASuperuser(b, url)
	aTransactionIsLong(b, url)
	pruningIsBehind(b, url)
	besideAHubWithADatabase(b)
	whatGrowsAndWhatIsInFiles(b, url)
}

// Doctor says what is wrong with a user who may do everything, and of no other.
func itsUserIsASuperuser(b board, url string) {
	require.NotContains(b.t, b.hand.do("doctor"), "database user")
	super := b
	super.env = []string{"DATABASE_URL=" + pgtest.Admin(url)}

	got := super.hand.run("", "doctor")

	require.Zero(b.t, got.code, "a note: %s", got.out)
	require.Regexp(b.t, `(?m)^database user +test_admin is a superuser, which is not needed`, got.out)
}

// Doctor names a transaction that reads a state which is long over.
func aTransactionIsLong(b board, url string) {
	dump, err := pgx.Connect(b.t.Context(), url+"&application_name=a-dump")
	require.NoError(b.t, err)
	defer dump.Close(context.WithoutCancel(b.t.Context()))
	_, err = dump.Exec(b.t.Context(), `BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM tasks`)
	require.NoError(b.t, err)
	others, err := pgx.Connect(b.t.Context(), url)
	require.NoError(b.t, err)
	defer others.Close(context.WithoutCancel(b.t.Context()))
	_, err = others.Exec(b.t.Context(), `DO $$ BEGIN FOR i IN 1..100000 LOOP
		BEGIN INSERT INTO retention (kind) VALUES ('x'); RAISE EXCEPTION 'undone'; EXCEPTION WHEN raise_exception THEN NULL; END; END LOOP; END $$`)
	require.NoError(b.t, err)

	got := b.hand.run("", "doctor")

	require.Equal(b.t, exitUnexpected, got.code)
	require.Regexp(b.t, fmt.Sprintf(`(?m)^long transaction +WRONG: process %d of the database server \(a-dump\)`, dump.PgConn().PID()), got.out)
	_, err = dump.Exec(b.t.Context(), `ROLLBACK`)
	require.NoError(b.t, err)
}

// Doctor says of which rows more come than pruning removes.
func pruningIsBehind(b board, url string) {
	require.Zero(b.t, b.hand.run("", "doctor").code)
	conn, err := pgx.Connect(b.t.Context(), url)
	require.NoError(b.t, err)
	defer conn.Close(context.WithoutCancel(b.t.Context()))
	_, err = conn.Exec(b.t.Context(), `INSERT INTO retention (kind, behind) VALUES ('inbox', true) ON CONFLICT (kind) DO UPDATE SET behind = true`)
	require.NoError(b.t, err)

	got := b.hand.run("", "doctor")

	require.Equal(b.t, exitUnexpected, got.code)
	require.Regexp(b.t, `(?m)^database +WRONG: pruning does not keep up with inbox; keep it for less time, as in: spawnmesh --data-dir \S+ retention inbox 7d$`, got.out)
	require.Regexp(b.t, `(?m)^inbox .*\(behind\)$`, b.hand.do("retention"))
	_, err = conn.Exec(b.t.Context(), `UPDATE retention SET behind = false`)
	require.NoError(b.t, err)
}

// Doctor names the kind that grew most, however small it is; both it and retention say
// how much output of agents there is, and what bounds it.
func whatGrowsAndWhatIsInFiles(b board, url string) {
	conn, err := pgx.Connect(b.t.Context(), url)
	require.NoError(b.t, err)
	defer conn.Close(context.WithoutCancel(b.t.Context()))
	for _, sql := range []string{
		`INSERT INTO retention (kind, bytes, bytes_at) VALUES ('recalled', -7000000, now()) ON CONFLICT (kind) DO UPDATE SET bytes = excluded.bytes`,
		`INSERT INTO log_sums VALUES (gen_random_uuid(), 3 << 20), (gen_random_uuid(), 2 << 20), (gen_random_uuid(), -(1 << 20))`,
	} {
		_, err = conn.Exec(b.t.Context(), sql)
		require.NoError(b.t, err, sql)
	}

	doctor, kept := b.hand.run("", "doctor"), b.hand.do("retention")

	const bounds = `at most 1 MiB an agent, 1 GiB a spoke, 64 GiB in all`
	require.Zero(b.t, doctor.code, "%s", doctor.out)
	require.Regexp(b.t, `(?m)^database +\d+\.\d MiB: \w+ .*, recalled 0\.0 MiB \(\+6\.7 since yesterday\)$`, doctor.out)
	require.Regexp(b.t, `(?m)^logs +`+bounds+`: logs 4\.0 MiB \(\+4\.0 since yesterday\)$`, doctor.out)
	require.Regexp(b.t, `(?m)^logs +8d +the last of it came +4\.0 MiB +4\.0 MiB +-$`, kept)
	require.Regexp(b.t, `(?m)^logs: `+bounds+`; set by hub run --output-age, --output-per-agent, --output-per-spoke, --output-total$`, kept)
	b.hand.refused(exitMisuse, "how much is kept of logs is set by hub run --output-age", "retention", "logs", "7d")
	b.hand.refused(exitMisuse, "how much is kept of logs is set by hub run --output-age", "retention", "logs", "default")
}

// A command that does not name the database that a hub was given asks the hub, or learns where
// it is to be found.
func besideAHubWithADatabase(b board) {
	ready := filepath.Join(b.dir, "ready")
	hub := b.begin("hub", "run", "--link", "127.0.0.1:0", "--ready-file", ready, "--output-per-agent", "1MiB", "--output-age", "8d")
	require.NoError(b.t, fleet.Poll(b.t.Context(), time.Minute, "waiting for the hub", func() (bool, error) {
		_, err := os.Stat(ready)
		return err == nil, ignoring(err, os.ErrNotExist)
	}))
	require.Equal(b.t, "A2", b.show("A2").Key)
	lost := board{hand{t: b.t, dir: b.dir}, b.workspace}
	require.Equal(b.t, "A2", lost.show("A2").Key, "the hub has the address")
	require.Contains(b.t, lost.hand.run("", "doctor").out, "set DATABASE_URL here to the same address")
	require.NoError(b.t, hub.cmd.Process.Signal(syscall.SIGTERM))
	require.Zero(b.t, hub.end().code)
}

func TestBacklogWhereNothingServes(t *testing.T) {
	t.Parallel()
	nobody := alone(t)
	nobody.env = []string{"SPAWNMESH_PG_BIN=" + t.TempDir()}
	nobody.refused(exitUnreachable, commands.StoreDown, "starting the private Postgres", "backlog", "create", "--title", "x")
	gone, stop := context.WithCancel(t.Context())
	stop()
	s := typedWith(gone, nil, "--data-dir", alone(t).dir, "backlog", "create", "--title", "x")
	require.Equal(t, exitInterrupted, s.code, "%s", s.err)
}

// A backlog without an instance is pruned by those who claim from it, as its
// host says.
func TestRetentionWithoutAnInstance(t *testing.T) {
	t.Parallel()
	b := alone(t)
	b.do("backlog", "create", "--id", "A1", "--title", "first")
	b.do("backlog", "claim", "--id", "A1")

	b.hand.refused(exitMisuse, `retention takes [KIND AGE] and got "tasks"`, "retention", "tasks")
	b.hand.refused(exitMisuse, "tasks are kept for 1h at least", "retention", "tasks", "1s")
	b.hand.refused(exitNotFound, `nothing is called "dreams"`, "retention", "dreams", "1h")
	b.hand.refused(exitMisuse, "rows of kind budget-sums go at once and are kept for no time", "retention", "budget-sums", "7d")
	require.Regexp(t, `(?m)^tasks +7d +the task ended +\d+\.\d MiB`, b.hand.do("retention", "tasks", "7d"))

	all := b.hand.do("retention")
	require.Regexp(t, `(?m)^tasks +7d .* \d\d:\d\d:\d\d`, all, "the claim has pruned")
	require.Regexp(t, `(?m)^audit +180d `, all)
	require.Regexp(t, `(?m)^counts +at once +nothing is counted any more `, all)
	require.Regexp(t, `(?m)^tasks +30d `, b.hand.do("retention", "tasks", "default"))
	require.Regexp(t, `(?m)^database +\d+\.\d MiB: .*since yesterday`, b.hand.do("doctor"))
}
