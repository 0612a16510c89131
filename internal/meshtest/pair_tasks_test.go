package meshtest

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

func TestAStaleFenceChangesNothing(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	task := p.Order(t, func(o *store.SpawnOrder) { o.Spawn.MaxRetries = 1 })
	p.toSpoke(t)
	first := p.claim(t, 1)[0]
	p.start(t, first)
	require.True(t, p.end(t, first.Fence, commands.Interrupted))
	require.Empty(t, p.claim(t, 1), "a loss waits for its back-off, as a failure does")
	p.ripen(t)
	_, err := p.backlog.Sweep(t.Context(), time.Second)
	require.NoError(t, err)
	second := p.claim(t, 1)[0]
	require.Equal(t, "reclaim", second.Type)
	require.Equal(t, 2, second.Fence.Attempt)

	held, err := p.backlog.Record(t.Context(), []backlog.Progress{{Start: &backlog.Start{Fence: first.Fence}}})
	require.NoError(t, err)
	renewed, err := p.backlog.Renew(t.Context(), []backlog.Fence{first.Fence, second.Fence}, time.Minute)
	require.NoError(t, err)

	require.Equal(t, []bool{false}, held)
	require.False(t, p.end(t, first.Fence, commands.Succeeded))
	require.Equal(t, map[backlog.Fence]bool{second.Fence: true}, renewed)
	require.Equal(t, 1, p.Spoke.Count(t, `SELECT count(*) FROM standing WHERE id = $1 AND state = 'claimed'`, task))
}

func TestFailureIsRetriedUntilItsRetriesAreSpent(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	task := p.Order(t, func(o *store.SpawnOrder) { o.Spawn.MaxRetries = 1 })
	p.toSpoke(t)
	c := p.claim(t, 1)[0]
	p.start(t, c)
	p.end(t, c.Fence, commands.AttemptFailed)
	p.toHub(t)
	require.Equal(t, commands.Queued, p.Mirror(t, task).State)
	here, err := p.backlog.Agent(t.Context(), task)
	require.NoError(t, err)
	first := p.Mirror(t, task).Attempts
	require.Len(t, first, 1, "the hub knows of the attempt that failed, and until when the next one waits")
	require.Equal(t, commands.AttemptFailed, first[0].Outcome)
	require.Greater(t, first[0].Next, first[0].At)
	require.Equal(t, []int64{first[0].Next}, []int64{here.Attempts[0].Next}, "as its host does")
	require.Empty(t, p.claim(t, 1), "it waits for its back-off")
	require.Equal(t, 1, p.Spoke.Count(t, `SELECT count(*) FROM due`))
	require.NoError(t, p.Spoke.Exec(`UPDATE due SET at = clock_timestamp()`))
	_, err = p.backlog.Sweep(t.Context(), time.Second)
	require.NoError(t, err)
	c = p.claim(t, 1)[0]
	p.start(t, c)
	p.end(t, c.Fence, commands.AttemptFailed)
	p.toHub(t)

	m := p.Mirror(t, task)
	require.Equal(t, commands.Failed, m.State)
	require.Equal(t, commands.RetriesExhausted, m.Reason)
	require.Equal(t, 2, m.Attempt)
	require.Equal(t, first, m.Attempts)
	here, err = p.backlog.Agent(t.Context(), task)
	require.NoError(t, err)
	require.Len(t, here.Attempts, 1)
	require.Zero(t, here.Attempts[0].Next, "it has ended")
}

// ripen ends the waits of tasks that are to be claimed again.
func (p *pair) ripen(t testing.TB) {
	t.Helper()
	require.NoError(t, p.Spoke.Exec(`UPDATE due SET at = clock_timestamp()`))
}

// An agent that could not be begun has cost nobody anything: neither a retry of
// its own nor what its claim reserved. It waits before it is tried again, longer
// each time, and not for ever.
func TestAnAttemptThatWasNotBegunIsReleased(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	task := p.Order(t, nil)
	p.toSpoke(t)
	require.NoError(t, p.Spoke.Exec(`INSERT INTO budgets (workspace, name, scope, dimension, hard) VALUES ('', 'all', 'instance', 'spawns', 5000000)`))
	c := p.claim(t, 1)[0]

	require.True(t, p.end(t, c.Fence, commands.Released))

	require.Empty(t, p.claim(t, 1), "it waits")
	require.Equal(t, 1, p.Spoke.Count(t, `SELECT count(*) FROM due WHERE task = $1 AND at > clock_timestamp() AND at < clock_timestamp() + interval '30 seconds'`, task))
	require.Equal(t, 1, p.Spoke.Count(t, `SELECT count(*) FROM tasks WHERE state = 'queued' AND retries = 0 AND reclaims = 1`))
	require.Equal(t, 1, p.Spoke.Count(t, `SELECT count(*) FROM ended_attempts WHERE outcome = 'released'`))
	require.Equal(t, 1, p.Spoke.Count(t, `SELECT count(*) FROM funds WHERE used = 0 AND reserved = 0`))
	require.NoError(t, p.Spoke.Exec(`UPDATE tasks SET reclaims = 100`))
	p.ripen(t)
	_, err := p.backlog.Sweep(t.Context(), time.Second)
	require.NoError(t, err)
	require.True(t, p.end(t, p.claim(t, 1)[0].Fence, commands.Released))
	p.toHub(t)
	require.Equal(t, commands.ReclaimsExhausted, p.Mirror(t, task).Reason)
}

func TestKill(t *testing.T) {
	t.Parallel()
	kill := func(t *testing.T, p *pair, task string) *store.Incoming {
		_, err := p.Hub.DB.OrderKill(t.Context(), commands.Kill{Task: task, Reason: "enough", GraceMS: 1000}, time.Hour, "test")
		require.NoError(t, err)
		taken := p.toSpoke(t)
		return taken[len(taken)-1]
	}
	t.Run("of a queued task ends it at once", func(t *testing.T) {
		t.Parallel()
		p := newPair(t)
		task := p.Order(t, nil)
		p.toSpoke(t)

		kill(t, p, task)
		p.toHub(t)

		require.Equal(t, commands.Cancelled, p.Mirror(t, task).State)
		require.Empty(t, p.claim(t, 1))
	})
	t.Run("of a running task revokes the lease first", func(t *testing.T) {
		t.Parallel()
		p := newPair(t)
		task := p.Order(t, nil)
		p.toSpoke(t)
		c := p.claim(t, 1)[0]
		p.start(t, c)

		got := kill(t, p, task)

		require.Equal(t, &backlog.KillRun{Fence: backlog.Fence{Task: task, Attempt: 1, Epoch: c.Fence.Epoch + 1}, Grace: time.Second}, got.Effect)
		require.False(t, p.end(t, c.Fence, commands.Succeeded), "the worker's fence is stale")
		again, ok, err := p.backlog.PendingKill(t.Context(), task)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, got.Effect, &again, "a restarted spoke finds it")
		require.True(t, p.end(t, got.Effect.(*backlog.KillRun).Fence, commands.AttemptKilled))
		p.toHub(t)
		require.Equal(t, commands.KillRequested, p.Mirror(t, task).Reason)
		require.Equal(t, 1, p.Hub.Count(t, `SELECT count(*) FROM inbox WHERE kind = 'agent.killed'`))
	})
	t.Run("before its spawn leaves a tombstone", func(t *testing.T) {
		t.Parallel()
		p := newPair(t)
		task := p.Order(t, nil)
		spawn := p.Hub.Due(t)[0]

		kill(t, p, task)
		p.take(t, spawn)
		p.toHub(t)

		require.Zero(t, p.Spoke.Count(t, `SELECT count(*) FROM tasks`))
		require.Equal(t, commands.Cancelled, p.Mirror(t, task).State)
	})
	t.Run("of an ended task returns the outcome", func(t *testing.T) {
		t.Parallel()
		p := newPair(t)
		task := p.Order(t, nil)
		p.toSpoke(t)
		c := p.claim(t, 1)[0]
		p.start(t, c)
		p.end(t, c.Fence, commands.Succeeded) // the hub does not know yet

		got := kill(t, p, task)
		p.toHub(t)

		require.Nil(t, got.Effect)
		require.Equal(t, commands.Completed, p.Mirror(t, task).State)
		require.Equal(t, 1, p.Hub.Count(t, `SELECT count(*) FROM inbox WHERE kind = 'agent.killed'`))
	})
}

func TestExpiredTasksAreNeverStarted(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	task := p.Order(t, func(o *store.SpawnOrder) { o.Life = time.Hour })
	p.toSpoke(t)
	require.NoError(t, p.Spoke.Exec(`UPDATE ready SET expires_at = clock_timestamp()`))

	require.Empty(t, p.claim(t, 1))
	swept, err := p.backlog.Sweep(t.Context(), time.Second)
	require.NoError(t, err)
	p.toHub(t)

	require.Equal(t, 1, swept.Expired)
	m := p.Mirror(t, task)
	require.Equal(t, commands.Expired, m.State)
	require.Equal(t, commands.CommandExpired, m.Reason)
}

func TestNoTwoClaimersGetTheSameTask(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	const tasks, claimers = 200, 8
	for i := range tasks {
		p.Order(t, func(o *store.SpawnOrder) { o.Spawn.Priority = i % 3 })
	}
	p.toSpoke(t)
	got := make(chan string, 2*tasks)
	done := make(chan error, claimers)
	for w := range claimers {
		go func() {
			for {
				list, err := p.backlog.Claim(t.Context(), backlog.ClaimTerms{Owner: fmt.Sprint(w), Limit: 3, Lease: time.Minute})
				if err != nil || len(list) == 0 {
					done <- err
					return
				}
				for _, c := range list {
					got <- c.Fence.Task
				}
			}
		}()
	}
	for range claimers {
		require.NoError(t, <-done)
	}
	close(got)

	seen := map[string]bool{}
	for task := range got {
		require.False(t, seen[task], "claimed twice")
		seen[task] = true
	}
	for len(seen) < tasks { // SKIP LOCKED may let the last claimers leave early
		list := p.claim(t, 50)
		require.NotEmpty(t, list)
		for _, c := range list {
			require.False(t, seen[c.Fence.Task], "claimed twice")
			seen[c.Fence.Task] = true
		}
	}
}

func TestClaimOrderAndCapabilities(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	low := p.Order(t, nil)
	gpu := p.Order(t, func(o *store.SpawnOrder) { o.Spawn.Priority, o.Spawn.Capabilities = 50, []string{"gpu", "go"} })
	high := p.Order(t, func(o *store.SpawnOrder) { o.Spawn.Priority = 10 })
	p.toSpoke(t)

	plain := p.claim(t, 10)
	able, err := p.backlog.Claim(t.Context(), backlog.ClaimTerms{Owner: "w", Capabilities: []string{"go", "gpu", "x"}, Limit: 10, Lease: time.Minute})
	require.NoError(t, err)

	require.Len(t, plain, 2)
	require.Equal(t, []string{high, low}, []string{plain[0].Fence.Task, plain[1].Fence.Task})
	require.Len(t, able, 1)
	require.Equal(t, gpu, able[0].Fence.Task)
}

func TestTerminalStatesAreFinalInTheDatabase(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.Order(t, nil)
	p.toSpoke(t)
	c := p.claim(t, 1)[0]
	p.start(t, c)
	p.end(t, c.Fence, commands.AttemptFailed)
	p.toHub(t)

	for _, sql := range []string{
		`UPDATE tasks SET state = 'queued', ended_at = NULL`,
		`UPDATE tasks SET state = 'completed'`,
		`UPDATE audit SET why = ''`,
		`DELETE FROM audit`,
	} {
		require.Error(t, p.Spoke.Exec(sql), sql)
	}
	require.Error(t, p.Hub.Exec(`UPDATE mirrors SET state = 'running', ended_at = NULL`))
	require.NoError(t, p.Spoke.Exec(`UPDATE tasks SET state = 'queued', ended_at = NULL, replays = 1`), "an operator's retry is counted")
}

// A run that met a limit of somebody else's goes on later, as often as it takes, and no retry is spent on it.
func TestALimitParksAnAgent(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	task := p.Order(t, func(o *store.SpawnOrder) { o.Spawn.MaxRetries = 0 })
	p.toSpoke(t)
	for n := range 3 {
		c := p.claim(t, 1)[0]
		p.start(t, c)
		p.end(t, c.Fence, commands.Parked)
		p.toHub(t)

		m := p.Mirror(t, task)
		require.Equal(t, commands.Queued, m.State)
		require.Equal(t, commands.Limit, m.Reason)
		require.Len(t, m.Attempts, n+1)
		require.Equal(t, commands.Parked, m.Attempts[n].Outcome)
		wait := time.UnixMilli(m.Attempts[n].Next).Sub(time.UnixMilli(m.Attempts[n].At))
		most := 5 * time.Minute << n
		require.GreaterOrEqual(t, wait, most/2-time.Second)
		require.LessOrEqual(t, wait, most+time.Second)
		require.Empty(t, p.claim(t, 1), "it is parked")
		p.ripen(t)
		_, err := p.backlog.Sweep(t.Context(), time.Second)
		require.NoError(t, err)
	}
	require.Zero(t, p.Spoke.Count(t, `SELECT retries + reclaims FROM tasks`))
	require.NoError(t, p.Spoke.Exec(`UPDATE tasks SET parks = 100`))
	c := p.claim(t, 1)[0]
	require.Equal(t, 1, p.Spoke.Count(t, `SELECT count(*) FROM leases WHERE type = 'resume'`))
	p.start(t, c)
	p.end(t, c.Fence, commands.Parked)
	p.toHub(t)

	m := p.Mirror(t, task)
	require.Equal(t, commands.Failed, m.State, "but not for ever")
	require.Equal(t, commands.Limit, m.Reason)
}

// An agent says so with its exit code.
func TestAnAgentThatMeetsALimitGoesOnLater(t *testing.T) {
	t.Parallel()
	m := Start(t, "attic")
	s := m.Spokes["attic"]
	task := m.Spawn(t, "attic", "sh", "-c", `[ -e "$0" ] && exit 0; touch "$0"; exit 75`, filepath.Join(t.TempDir(), "ran"))
	Await(t, "that it is parked", func() bool { return m.Agent(t, task).Reason == commands.Limit })
	require.Equal(t, commands.Queued, m.Agent(t, task).State)
	m.Stop(t, "attic")
	s.Exec(t, `UPDATE due SET at = clock_timestamp()`)
	m.Start(t, "attic")

	v := m.Wait(t, task)
	require.Equal(t, commands.Completed, v.State)
	require.Equal(t, 2, v.Attempt)
	m.Check(t)
}
