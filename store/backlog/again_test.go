package backlog_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// A task that is asked for again waits as long as the longest of its requests says; one
// that runs, or has run, has no end to wait for.
func TestATaskThatIsAskedForAgainWaitsForTheLonger(t *testing.T) {
	t.Parallel()
	side := newSide(t)
	s := scene{t, side, boardOf(t, side, backlog.MainWorkspace)}
	r := s.asked()
	again := func(r backlog.Request, longer time.Duration) {
		r.Asked, r.Expires = message(), r.Expires.Add(longer)
		require.True(t, s.asks(r)[0].Known)
	}
	waits := func(until time.Time) int {
		return s.Count(t, `SELECT count(*) FROM tasks t JOIN ready r ON r.task = t.id WHERE t.id = $1 AND t.expires_at = $2 AND r.expires_at = $2`, r.Spawn.Task, until)
	}

	again(r, time.Hour)
	again(r, -time.Minute)
	require.Equal(t, 1, waits(r.Expires.Add(time.Hour).Truncate(time.Microsecond)))

	claimed := s.claim()
	require.Len(t, claimed, 1)
	again(r, 2*time.Hour)
	require.Zero(t, s.Count(t, `SELECT count(*) FROM ready WHERE task = $1`, r.Spawn.Task))
}

// A task may end while it is asked for again, after the request has found that it is
// here. The new request is answered with the end.
func TestATaskEndsWhileItIsAskedForAgain(t *testing.T) {
	t.Parallel()
	side := newSide(t)
	s := scene{t, side, boardOf(t, side, backlog.MainWorkspace)}
	s.Meet(t, store.Obeys)
	first, second := s.request(), s.request()
	if first.Spawn.Task > second.Spawn.Task {
		first.Spawn.Task, second.Spawn.Task = second.Spawn.Task, first.Spawn.Task
	}
	require.Nil(t, s.asks(first)[0].Refusal)
	brake, end := owner(t, s.URL), owner(t, s.URL)
	stopsAt := func(c *pgx.Conn) {
		require.Eventually(t, func() bool {
			return s.Count(t, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND $1 = ANY (pg_blocking_pids(pid))`, c.PgConn().PID()) > 0
		}, time.Minute, 10*time.Millisecond)
	}
	act := func(c *pgx.Conn, sql string, args ...any) {
		_, err := c.Exec(t.Context(), sql, args...)
		require.NoError(t, err)
	}
	// The request looks at the tasks in the order of their ids, and stops at the second.
	act(brake, `BEGIN`)
	act(brake, `INSERT INTO tasks (id, conn, title, command, command_digest, class, lane, priority) SELECT $2, conn, title, gen_random_uuid(), command_digest, class, lane, priority FROM tasks WHERE id = $1`, first.Spawn.Task, second.Spawn.Task)
	first.Asked = message()
	answer := make(chan []backlog.Requested, 1)
	go func() { answer <- s.asks(first, second) }()
	stopsAt(brake)

	act(end, `BEGIN`)
	act(end, `UPDATE tasks SET state = 'completed', ended_at = clock_timestamp() WHERE id = $1`, first.Spawn.Task)
	act(end, `UPDATE task_bodies SET result = jsonb_build_object('task', $1::text, 'state', 'completed') WHERE task = $1::uuid`, first.Spawn.Task)
	act(brake, `ROLLBACK`)
	stopsAt(end)
	act(end, `COMMIT`)

	out := <-answer
	require.NotNil(t, out[0].Result)
	require.Equal(t, commands.Completed, out[0].State)
	require.False(t, out[1].Known)
}

// Somebody else's kill of a task that never came says nothing about the task that comes
// under its id.
func TestAKillOfAnotherConnectionIsNotInForce(t *testing.T) {
	t.Parallel()
	side := newSide(t)
	s := scene{t, side, boardOf(t, side, backlog.MainWorkspace)}
	s.Meet(s, store.Obeys)
	r := s.request()
	other := s.kill(r)
	other.Conn, other.Grace = storetest.NewID(), 0
	require.NoError(t, s.Exec(`INSERT INTO connections (id, peer, peer_name, authority, state, link_key) VALUES ($1, 'p', 'other', 'obeys', 'active', '')`, other.Conn))
	require.NoError(t, s.DB.Tx(t.Context(), "taking in a kill", func(ctx context.Context, tx *store.Tx) error {
		_, err := s.backlog.NoteKill(ctx, tx, other)
		return err
	}))
	require.Nil(t, s.asks(r)[0].Refusal)
	require.Len(t, s.claim(), 1)

	_, err := s.backlog.KillHere(t.Context(), backlog.HostKill{Kill: commands.Kill{Task: r.Spawn.Task, Reason: "enough", GraceMS: 1000}, ID: storetest.NewID(), Actor: "ann"})

	require.NoError(t, err)
	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM standing WHERE id = $1 AND reason = 'operator'`, r.Spawn.Task))
}

// A start that an end in the same batch has overtaken is told with the result alone, by the policy that let
// it start. One whose task goes back to the queue is told.
func TestWhichStartsAreTold(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		outcome commands.Outcome
		told    []commands.State
	}{
		"of a task that has ended":           {commands.Succeeded, []commands.State{commands.Completed}},
		"of an attempt that is not the last": {commands.AttemptFailed, []commands.State{commands.Running, commands.Queued}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSide(t)
			f := scene{t, s, boardOf(t, s, backlog.MainWorkspace)}.running()
			var told []backlog.Moved
			b := backlog.Open(s.DB, func(_ context.Context, _ *store.Tx, list []backlog.Moved) error { told = list; return nil })

			_, err := b.Record(t.Context(), []backlog.Progress{{Start: &backlog.Start{Fence: f, Pid: 1, BootID: "b", Policy: "p7", Isolation: commands.IsolationUser}, End: &backlog.End{Fence: f, Outcome: tt.outcome}}})

			require.NoError(t, err)
			var states []commands.State
			for _, m := range told {
				states = append(states, m.State)
			}
			require.Equal(t, tt.told, states)
			if len(told) == 1 {
				require.Equal(t, []string{"p7", commands.IsolationUser}, []string{told[0].Result().Policy, told[0].Result().Isolation})
				return
			}
			require.Equal(t, []string{"p7", commands.IsolationUser}, []string{told[0].Start.Policy, told[0].Start.Isolation})
		})
	}
}

// An agent that was not begun goes back to the queue without a reason: nobody has died. One that may have begun, and that
// its order does not allow to run again, has failed by that.
func TestWhoWasNotBegunHasNotDied(t *testing.T) {
	t.Parallel()
	for outcome, want := range map[commands.Outcome][]any{
		commands.Released:    {commands.Queued, commands.NoReason},
		commands.Interrupted: {commands.Failed, commands.ExecutorDied},
	} {
		t.Run(string(outcome), func(t *testing.T) {
			t.Parallel()
			side := newSide(t)
			s := scene{t, side, boardOf(t, side, backlog.MainWorkspace)}
			s.Meet(s, store.Obeys)
			r := s.request()
			r.Spawn.MaxRetries = 0
			require.Nil(t, s.asks(r)[0].Refusal)
			var told []backlog.Moved
			b := backlog.Open(s.DB, func(_ context.Context, _ *store.Tx, list []backlog.Moved) error { told = list; return nil })

			_, err := b.Record(t.Context(), []backlog.Progress{{End: &backlog.End{Fence: s.claim()[0].Fence, Outcome: outcome, Exit: commands.Exit{Code: -1, Error: "x"}}}})

			require.NoError(t, err)
			require.Len(t, told, 1)
			require.Equal(t, want, []any{told[0].State, told[0].Reason})
		})
	}
}

// A retry takes the task out of those that have ended as it stands there when it has the task, which may have
// been retried and have failed meanwhile: else its next end would be there twice.
func TestARetryBehindAnotherEnd(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	b := boardOf(t, s, backlog.MainWorkspace)
	create(t, b, backlog.TaskSpec{Key: "a", Title: "t"})
	fail := func() {
		f := claimCards(t, b, nil)[0].Fence
		_, err := b.Fail(t.Context(), backlog.Act{Fence: &f})
		require.NoError(t, err)
	}
	fail()
	other, watcher := owner(t, s.URL), owner(t, s.URL)
	_, err := other.Exec(t.Context(), `BEGIN; SELECT FROM tasks FOR NO KEY UPDATE; CREATE TEMPORARY TABLE was AS SELECT task, workspace, lane, phase, state, at FROM ended; DELETE FROM ended; INSERT INTO ended SELECT * FROM was`)
	require.NoError(t, err)
	retried := make(chan error, 1)

	go func() {
		_, err := b.Retry(context.Background(), backlog.Act{Task: "a"})
		retried <- err
	}()
	eventually(t, "the retry waits for the task", func() (waits bool) {
		require.NoError(t, watcher.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`).Scan(&waits))
		return waits
	})
	_, err = other.Exec(t.Context(), `COMMIT`)
	require.NoError(t, err)

	require.NoError(t, <-retried)
	require.Zero(t, s.Count(t, `SELECT count(*) FROM ended`))
	fail()
	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM ended`))
}
