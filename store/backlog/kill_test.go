package backlog_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// A kill and its spawn come over lanes of their own, so both can be taken in at
// the same moment. Neither may miss the other.
func TestAKillAndItsSpawnAtOnce(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	here := scene{t, s, boardOf(t, s, backlog.MainWorkspace)}
	s.Meet(t, store.Obeys)
	r := here.request()
	taken, goOn := make(chan struct{}), make(chan struct{})
	spawned, killed := make(chan error, 1), make(chan error, 1)
	var state commands.State

	go func() {
		spawned <- s.DB.Tx(context.Background(), "taking in a spawn", func(ctx context.Context, tx *store.Tx) error {
			_, err := s.backlog.Request(ctx, tx, []backlog.Request{r})
			close(taken)
			<-goOn
			return err
		})
	}()
	<-taken
	go func() {
		killed <- s.DB.Tx(context.Background(), "taking in a kill", func(ctx context.Context, tx *store.Tx) (err error) {
			state, err = s.backlog.NoteKill(ctx, tx, here.kill(r))
			return err
		})
	}()
	watcher := owner(t, s.URL)
	eventually(t, "the kill waits for the spawn, or is done", func() (waits bool) {
		require.NoError(t, watcher.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_locks l WHERE NOT l.granted AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()))`).Scan(&waits))
		return waits || len(killed) > 0
	})
	close(goOn)

	require.NoError(t, <-spawned)
	require.NoError(t, <-killed)
	require.Equal(t, commands.Queued, state, "the kill finds the task")
}

// A cancel that lets an attempt finish is no kill of it, also after the spoke was started again. A kill after it is.
func TestACancelThatLetsFinishIsNoKill(t *testing.T) {
	t.Parallel()
	side := newSide(t)
	s := scene{t, side, boardOf(t, side, backlog.MainWorkspace)}
	f := s.started()
	order := func(cancel string) {
		k := backlog.Kill{Conn: s.Conn.ID, Asked: message(), Task: f.Task, Reason: "enough", Grace: time.Second, Expires: time.Now().Add(time.Hour), Actor: "hub", Cancel: cancel}
		require.NoError(t, s.DB.Tx(t.Context(), "killing", func(ctx context.Context, tx *store.Tx) error {
			state, err := s.backlog.NoteKill(ctx, tx, k)
			if err == nil {
				_, err = s.backlog.Kill(ctx, tx, k, state)
			}
			return err
		}))
	}

	order(commands.CancelAfter)
	_, pending, err := s.backlog.PendingKill(t.Context(), f.Task)
	require.NoError(t, err)
	require.False(t, pending)

	order("")
	k, pending, err := s.backlog.PendingKill(t.Context(), f.Task)
	require.NoError(t, err)
	require.True(t, pending)
	require.Equal(t, f.Epoch+1, k.Fence.Epoch)
}

// A kill stays as long as its task, and as long as a request for the task could come.
func TestAKillStaysUntilItsTaskCannotCome(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	here := scene{t, s, boardOf(t, s, backlog.MainWorkspace)}
	r := here.asked()
	never := here.kill(here.request())
	never.Conn = r.Conn
	require.NoError(t, s.DB.Tx(t.Context(), "taking in kills", func(ctx context.Context, tx *store.Tx) error {
		if _, err := s.backlog.NoteKill(ctx, tx, never); err != nil {
			return err
		}
		state, err := s.backlog.NoteKill(ctx, tx, here.kill(r))
		if err != nil {
			return err
		}
		_, err = s.backlog.Kill(ctx, tx, here.kill(r), state)
		return err
	}))
	require.NoError(t, s.DB.SetRetention(t.Context(), "tasks", time.Hour, "ann"))
	pruned := func(expired string) map[string]int64 {
		require.NoError(t, s.Exec(`UPDATE kills SET exp = now() - $1::text::interval`, expired))
		removed, err := s.DB.Prune(t.Context(), 0, time.Minute)
		require.NoError(t, err)
		return removed
	}

	withTask := pruned("25 hours")
	require.NoError(t, s.Exec(`UPDATE tasks SET ended_at = ended_at - interval '2 hours'`))
	require.NoError(t, s.Exec(`UPDATE ended SET at = at - interval '2 hours'`))
	without := pruned("23 hours")
	var again []backlog.Requested
	require.NoError(t, s.DB.Tx(t.Context(), "taking in a spawn", func(ctx context.Context, tx *store.Tx) (err error) {
		again, err = s.backlog.Request(ctx, tx, []backlog.Request{r})
		return err
	}))
	late := pruned("25 hours")

	require.EqualValues(t, 1, withTask["kills"], "of a task that never came")
	require.EqualValues(t, 1, without["tasks"])
	require.Zero(t, without["kills"], "the task could come again")
	require.Equal(t, commands.Tombstone, again[0].Refusal.Code)
	require.EqualValues(t, 1, late["kills"])
	require.Zero(t, s.Count(t, `SELECT count(*) FROM kills`))
}

// locked reports whether somebody waits for a lock of the database.
func locked(t *testing.T, watcher *pgx.Conn) (waits bool) {
	t.Helper()
	require.NoError(t, watcher.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`).Scan(&waits))
	return waits
}

// Work of a connection ends although its spoke claims it at the same moment.
func TestWorkThatIsBeingClaimedIsRevoked(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	here := scene{t, s, boardOf(t, s, backlog.MainWorkspace)}
	s.Meet(t, store.Obeys)
	first, second := here.request(), here.request()
	require.NoError(t, s.DB.Tx(t.Context(), "requesting", func(ctx context.Context, tx *store.Tx) error {
		_, err := s.backlog.Request(ctx, tx, []backlog.Request{first, second})
		return err
	}))
	claimer, watcher := owner(t, s.URL), owner(t, s.URL)
	claim, err := claimer.Begin(t.Context())
	require.NoError(t, err)
	var claimed string
	require.NoError(t, claim.QueryRow(t.Context(), `SELECT task FROM claim(gen_random_uuid(), 'main', 'spoke', 'agent', '{noop,exec}', NULL, '1 hour', 1, NULL, NULL, 'spoke')`).Scan(&claimed))
	revoked := make(chan error, 1)
	tries := 0

	go func() {
		revoked <- s.DB.Tx(context.Background(), "revoking", func(ctx context.Context, tx *store.Tx) error {
			tries++
			return s.backlog.RevokeWork(ctx, tx, s.Conn.ID, true)
		})
	}()
	eventually(t, "it waits for the claim", func() bool { return len(revoked) > 0 || locked(t, watcher) })
	require.NoError(t, claim.Commit(t.Context()))

	require.NoError(t, <-revoked)
	require.Equal(t, 1, tries)
	runs, err := s.backlog.RevokedRuns(t.Context(), s.Conn.ID)
	require.NoError(t, err)
	require.Len(t, runs, 1)
	require.Equal(t, claimed, runs[0].Fence.Task)
	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM tasks WHERE state = 'cancelled'`))
}

// Expiry waits for no task: whoever holds one may want the next.
func TestAnExpiryPassesOverHeldTasks(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	b := boardOf(t, s, backlog.MainWorkspace)
	create(t, b, backlog.TaskSpec{Key: "a", Title: "a"}, backlog.TaskSpec{Key: "b", Title: "b"})
	require.NoError(t, s.Exec(`UPDATE tasks SET expires_at = now() - interval '1 s'`))
	require.NoError(t, s.Exec(`UPDATE ready SET expires_at = now() - interval '1 s'`))
	holder := owner(t, s.URL)
	held, err := holder.Begin(t.Context())
	require.NoError(t, err)
	_, err = held.Exec(t.Context(), `SELECT FROM tasks WHERE key = 'a' FOR NO KEY UPDATE`)
	require.NoError(t, err)
	ctx, done := context.WithTimeout(t.Context(), 20*time.Second)
	defer done()

	swept, err := s.backlog.Sweep(ctx, time.Hour)

	require.NoError(t, err)
	require.Equal(t, 1, swept.Expired)
	require.NoError(t, held.Rollback(t.Context()))
	swept, err = s.backlog.Sweep(ctx, time.Hour)
	require.NoError(t, err)
	require.Equal(t, 1, swept.Expired)
}

// Of two who retry a task at once one is told that the other was faster.
func TestTwoRetriesAtOnce(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	b := boardOf(t, s, backlog.MainWorkspace)
	create(t, b, backlog.TaskSpec{Key: "a", Title: "a"})
	_, err := b.Cancel(t.Context(), backlog.Act{Task: "a", Reason: "x"})
	require.NoError(t, err)
	holder, watcher := owner(t, s.URL), owner(t, s.URL)
	held, err := holder.Begin(t.Context())
	require.NoError(t, err)
	_, err = held.Exec(t.Context(), `SELECT FROM tasks FOR NO KEY UPDATE`)
	require.NoError(t, err)
	retried := make(chan error, 2)

	for range 2 {
		go func() {
			_, err := b.Retry(context.Background(), backlog.Act{Task: "a", Reason: "again"})
			retried <- err
		}()
	}
	eventually(t, "both wait", func() (both bool) {
		require.NoError(t, watcher.QueryRow(t.Context(), `SELECT count(*) = 2 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&both))
		return both
	})
	require.NoError(t, held.Rollback(t.Context()))

	errs := errors.Join(<-retried, <-retried)
	require.ErrorContains(t, errs, "somebody else has changed task a at this moment")
	require.Equal(t, 1, s.Count(t, `SELECT replays FROM tasks`))
}

// A kill that has its task when a claim comes in between lets it go again, and comes behind the lease.
func TestAKillDoesNotWaitForALeaseWithItsTask(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	r := scene{t, s, boardOf(t, s, backlog.MainWorkspace)}.asked()
	holder, worker, watcher := owner(t, s.URL), owner(t, s.URL), owner(t, s.URL)
	waits := func() {
		eventually(t, "the kill waits", func() (yes bool) {
			require.NoError(t, watcher.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`).Scan(&yes))
			return yes
		})
	}
	exec := func(conn *pgx.Conn, sql string) {
		_, err := conn.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	exec(holder, `BEGIN; SELECT FROM tasks FOR NO KEY UPDATE`)
	killed := make(chan error, 1)
	go func() {
		_, err := s.backlog.KillHere(context.Background(), backlog.HostKill{Kill: commands.Kill{Task: r.Spawn.Task, Reason: "enough", GraceMS: 1000}, ID: storetest.NewID(), Actor: "ann"})
		killed <- err
	}()
	waits()
	list, err := s.backlog.Claim(t.Context(), backlog.ClaimTerms{Owner: string(s.Self())})
	require.NoError(t, err)
	require.Len(t, list, 1)
	exec(worker, `BEGIN; SELECT FROM leases FOR UPDATE`)

	exec(holder, `COMMIT`)
	eventually(t, "the kill waits for the lease", func() (yes bool) {
		require.NoError(t, watcher.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query ~ 'leases')`).Scan(&yes))
		return yes
	})

	exec(worker, `SELECT FROM tasks FOR NO KEY UPDATE NOWAIT`)
	exec(worker, `COMMIT`)
	require.NoError(t, <-killed)
	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM leases WHERE reason = 'operator'`))
}
