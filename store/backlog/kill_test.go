package backlog_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
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
