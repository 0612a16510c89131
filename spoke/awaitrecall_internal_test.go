package spoke

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/internal/wait"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// The slot of an attempt that begins to wait for its hub is free, and whoever fills slots is told so: nothing else may come that wakes him.
// The wait ends with its lease: a kill may have closed that itself.
func TestASlotThatAWaitLeavesIsFilled(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	s, _ := liveRun()
	s.backlog, s.work = Backlog(p.Spoke.DB, t.TempDir()), wait.NewSignal()
	waits := func() (*run, chan bool) {
		r := &run{fence: backlog.Fence{Task: askedFor(t, p, s.backlog), Attempt: 1}}
		require.NoError(t, p.Spoke.Exec(`UPDATE sequences SET recall_from = 1`))
		s.live.add(r)
		require.Equal(t, 2, s.live.count())
		goesOn := make(chan bool, 1)
		go func() { goesOn <- s.recalled(t.Context(), r) }()
		return r, goesOn
	}

	r, goesOn := waits()

	within(t, s.work, "nobody is told")
	require.Equal(t, 1, s.live.count())
	s.live.lose(r)
	require.True(t, within(t, goesOn, "it waits without its lease"))
	s.live.remove(r)
	_, goesOn = waits()
	within(t, s.work, "nobody is told")
	s.live.abandon()
	require.False(t, <-goesOn)
	s.attempts.Wait()
}

// What cannot be looked for is not what a hub has said: while the database refuses an attempt waits, and what has begun is not taken for
// what has not.
func TestAWaitForAHubOutlivesAFailingDatabase(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	s, _ := liveRun()
	failed := make(chan string, 100)
	s.Log = slog.New(slog.NewTextHandler(lines(failed), nil))
	s.backlog, s.work = Backlog(p.Spoke.DB, t.TempDir()), wait.NewSignal()
	r := &run{fence: backlog.Fence{Task: askedFor(t, p, s.backlog), Attempt: 1}}
	s.live.add(r)
	require.NoError(t, p.Spoke.Exec(`INSERT INTO recalled (task, conn, attempt, over) VALUES ($1, $2, 1, false)`, r.fence.Task, p.Spoke.Conn.ID))
	owner, err := pgx.Connect(t.Context(), p.Spoke.URL)
	require.NoError(t, err)
	t.Cleanup(func() { _ = owner.Close(context.WithoutCancel(t.Context())) })
	_, err = owner.Exec(t.Context(), `ALTER TABLE recalled RENAME TO not_recalled`)
	require.NoError(t, err)
	goesOn := make(chan bool, 1)

	go func() { goesOn <- s.recalled(t.Context(), r) }()

	for range 2 { // the second look comes after what the first one tells
		select {
		case <-goesOn:
			require.FailNow(t, "it goes on without an answer")
		case line := <-failed:
			require.Contains(t, line, "looking for what the hub recalls; it is tried again")
		case <-time.After(time.Minute):
			require.FailNow(t, "nobody looks")
		}
	}
	_, err = owner.Exec(t.Context(), `ALTER TABLE not_recalled RENAME TO recalled`)
	require.NoError(t, err)
	require.True(t, within(t, goesOn, "it waits although all is said"))
	require.True(t, r.begun, "it ends as one that had begun")
	s.live.remove(r)
	s.attempts.Wait()
}

// lines is what is logged, line by line.
type lines chan string

func (l lines) Write(line []byte) (int, error) {
	select {
	case l <- string(line):
	default: // the test has seen enough
	}
	return len(line), nil
}

// within is what comes within a minute.
func within[T any](t *testing.T, from <-chan T, otherwise string) (got T) {
	t.Helper()
	select {
	case got = <-from:
	case <-time.After(time.Minute):
		require.FailNow(t, otherwise)
	}
	return got
}

// askedFor has the hub of p ask for an agent, and returns its task.
func askedFor(t *testing.T, p *storetest.Pair, b *backlog.Backlog) string {
	t.Helper()
	task := storetest.NewID()
	require.NoError(t, p.Spoke.DB.Tx(t.Context(), "asking", func(ctx context.Context, tx *store.Tx) error {
		_, err := b.Request(ctx, tx, []backlog.Request{{Conn: p.Spoke.Conn.ID, Expires: time.Now().Add(time.Hour),
			Asked: backlog.Asked{Command: storetest.NewID(), Digest: strings.Repeat("ab", 32)}, Spawn: &commands.Spawn{Task: task, Runtime: commands.RuntimeNoop}}})
		return err
	}))
	return task
}

// A stop does not spend its time on attempts that only wait for their hubs: the next start finds them as they are.
func TestAStopWaitsForNoHub(t *testing.T) {
	t.Parallel()
	s, r := liveRun()
	s.Drain = time.Hour
	s.live.await(r, make(chan backlog.Past, 1))
	ended := make(chan bool, 1)

	go func() { ended <- s.awaitAgents(nil) }()

	require.False(t, within(t, ended, "it waits"), "they are left")
}
