package backlog_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/pgtest"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// everywhere is all that is kept about a task.
const everywhere = `SELECT (SELECT count(*) FROM tasks WHERE id = $1) + (SELECT count(*) FROM task_bodies WHERE task = $1) + (SELECT count(*) FROM ended_attempts WHERE task = $1)
	+ (SELECT count(*) FROM usage_reports WHERE task = $1) + (SELECT count(*) FROM ended WHERE task = $1) + (SELECT count(*) FROM dependencies WHERE $1 IN (task, dependency))
	+ (SELECT count(*) FROM sessions WHERE task = $1) + (SELECT count(*) FROM agents WHERE id = $1)
	+ (SELECT count(*) FROM progress WHERE task = $1) + (SELECT count(*) FROM questions WHERE task = $1) + (SELECT count(*) FROM task_checkpoints WHERE task = $1)`

func TestOldTasksGoWithAllThatIsKeptAboutThem(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	b := boardOf(t, s, backlog.MainWorkspace)
	here := scene{t, s, b}
	r := here.asked()
	agents, err := b.Claim(t.Context(), backlog.ClaimTerms{Owner: string(s.DB.Self()), Limit: 1, Kind: backlog.AgentKind})
	require.NoError(t, err)
	_, err = s.backlog.Record(t.Context(), []backlog.Progress{{Start: &backlog.Start{Fence: agents[0].Fence, Pid: 1, BootID: "b"}}})
	require.NoError(t, err)
	_, err = s.backlog.SayProgress(t.Context(), agents[0].Fence, commands.Progress{Step: "here"})
	require.NoError(t, err)
	_, err = s.backlog.Ask(t.Context(), agents[0].Fence, inquiry)
	require.NoError(t, err)
	_, err = s.backlog.KeepCheckpoint(t.Context(), agents[0].Fence, backlog.Checkpoint{Digest: "d", Size: 1})
	require.NoError(t, err)
	_, err = s.backlog.Record(t.Context(), []backlog.Progress{{End: &backlog.End{Fence: agents[0].Fence, Outcome: commands.Succeeded}}})
	require.NoError(t, err)
	made := create(t, b, backlog.TaskSpec{Key: "done", Title: "t", Body: "x"}, backlog.TaskSpec{Key: "shut", Title: "t"}, backlog.TaskSpec{Key: "open", Title: "t"},
		backlog.TaskSpec{Key: "failed", Title: "t"}, backlog.TaskSpec{Key: "waits", Title: "t", DependsOn: []string{"failed", "done"}})
	claimed := claimCards(t, b, func(c *backlog.ClaimTerms) { c.Task = "done" })
	_, err = b.Complete(t.Context(), backlog.Act{Fence: &claimed[0].Fence, Usage: tokens(3), Result: []byte(`{}`)})
	require.NoError(t, err)
	claimed = claimCards(t, b, func(c *backlog.ClaimTerms) { c.Task = "failed" })
	_, err = b.Fail(t.Context(), backlog.Act{Fence: &claimed[0].Fence})
	require.NoError(t, err)
	_, err = b.Cancel(t.Context(), backlog.Act{Task: "shut"})
	require.NoError(t, err)
	_, err = b.Archive(t.Context(), "shut", true)
	require.NoError(t, err)
	require.NoError(t, s.DB.SetRetention(t.Context(), "tasks", time.Hour, "ann"))
	young, err := s.DB.Prune(t.Context(), 0, time.Minute)
	require.NoError(t, err)
	require.NoError(t, s.Exec(`UPDATE tasks SET ended_at = ended_at - interval '2 hours'`))
	require.NoError(t, s.Exec(`UPDATE ended SET at = at - interval '2 hours'`))

	old, err := s.DB.Prune(t.Context(), 0, time.Minute)

	require.NoError(t, err)
	require.Zero(t, young["tasks"])
	require.EqualValues(t, 3, old["tasks"])
	for i, gone := range []bool{true, true, false, false, false} {
		require.Equal(t, gone, s.Count(t, everywhere, made[i].ID) == 0, made[i].Key)
	}
	require.Zero(t, s.Count(t, everywhere, r.Spawn.Task))
	stats, err := b.Stats(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[commands.State]int64{commands.Queued: 2, commands.Failed: 1}, stats.States, "what somebody waits for stays: it may be retried")
}

// What goes with a task is found by an index, also what the database itself looks for: a table that is read whole is so
// for the batch, and not for each task of it.
func TestPruningReadsWhatGoes(t *testing.T) {
	t.Parallel()
	l := newLarge(t, pgtest.URL(t), 10_000, 100, everything)
	tx, err := owner(t, l.URL).Begin(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback(t.Context())) }()
	var gone int
	var read string

	require.NoError(t, tx.QueryRow(t.Context(), `SELECT prune_tasks('-1 hour', 1000)`).Scan(&gone))

	require.NoError(t, tx.QueryRow(t.Context(), `SELECT coalesce(string_agg(relname || ' ' || seq_tup_read, ', '), '') FROM pg_stat_xact_user_tables WHERE seq_tup_read > 50000`).Scan(&read))
	require.Equal(t, 1000, gone)
	require.Empty(t, read, "tables that were read whole again and again, and rows that were read so")
}

// Pruning has looked at what is old and holds none of it yet when somebody begins
// to wait for one of them.
func TestATaskThatSomebodyBeginsToWaitForIsNotPruned(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	b := boardOf(t, s, backlog.MainWorkspace)
	create(t, b, backlog.TaskSpec{Key: "failed", Title: "t"}, backlog.TaskSpec{Key: "done", Title: "t"})
	for key, end := range map[string]func(context.Context, backlog.Act) (backlog.Task, error){"failed": b.Fail, "done": b.Complete} {
		claimed := claimCards(t, b, func(c *backlog.ClaimTerms) { c.Task = key })
		_, err := end(t.Context(), backlog.Act{Fence: &claimed[0].Fence})
		require.NoError(t, err)
	}
	require.NoError(t, s.Exec(`UPDATE tasks SET ended_at = ended_at - interval '40 days'`))
	require.NoError(t, s.Exec(`UPDATE ended SET at = at - interval '40 days'`))
	admin := owner(t, s.URL)
	_, err := admin.Exec(t.Context(), `CREATE FUNCTION stop() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock_shared(7); RETURN true; END $$;
		ALTER POLICY engine ON ended USING (stop());
		SELECT pg_advisory_lock(7)`)
	require.NoError(t, err)
	pruned := make(chan error, 1)

	go func() {
		_, err := s.DB.Prune(context.Background(), 0, time.Minute)
		pruned <- err
	}()
	eventually(t, "pruning looks at what is old", func() (stops bool) {
		require.NoError(t, admin.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))`).Scan(&stops))
		return stops
	})
	waits := create(t, b, backlog.TaskSpec{Key: "waits", Title: "t", DependsOn: []string{"failed"}})[0]
	_, err = admin.Exec(t.Context(), `SELECT pg_advisory_unlock(7)`)
	require.NoError(t, err)
	require.NoError(t, <-pruned)

	require.Zero(t, s.Count(t, `SELECT count(*) FROM tasks WHERE key = 'done'`), "nobody waits for it")
	task, err := b.Show(t.Context(), waits.ID)
	require.NoError(t, err)
	require.Len(t, task.DependsOn, 1)
	require.NoError(t, b.Unlink(t.Context(), "waits", "failed"))
	require.Len(t, claimCards(t, b, nil), 1)
}

func TestAClassThatNobodyUsesGoes(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	b := boardOf(t, s, backlog.MainWorkspace)
	create(t, b, backlog.TaskSpec{Key: "stays", Title: "t", Lane: "used"})
	require.NoError(t, s.Exec(`INSERT INTO classes (workspace, lane, kind, capabilities, account, sizes, digest) VALUES ('main', 'unused', 'card', '{}', '', '{}', class_digest('main', 'unused', 'card', '{}', '', NULL, NULL, '{}'))`))
	require.NoError(t, s.Exec(`UPDATE classes SET seen = now() - interval '8 days'`))

	removed, err := s.DB.Prune(t.Context(), 0, time.Minute)

	require.NoError(t, err)
	require.EqualValues(t, 1, removed["classes"])
	create(t, b, backlog.TaskSpec{Title: "t", Lane: "unused"})
	require.Len(t, claimCards(t, b, func(c *backlog.ClaimTerms) { c.Lanes = []string{"unused"} }), 1)
}

// A class that is found again after a long time is in use from then on.
func TestAClassThatIsUsedAgainStays(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	create(t, boardOf(t, s, backlog.MainWorkspace), backlog.TaskSpec{Key: "first", Title: "t", Lane: "rare"})
	require.NoError(t, s.Exec(`UPDATE classes SET seen = now() - interval '8 days'`))
	another := &side{s.Side, backlog.Open(s.DB, nobodyAsks)}

	create(t, boardOf(t, another, backlog.MainWorkspace), backlog.TaskSpec{Key: "second", Title: "t", Lane: "rare"})

	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM classes WHERE seen > now() - interval '1 minute'`))
}
