package backlog_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
		require.NoError(t, s.DB.Tx(t.Context(), "asking again", func(ctx context.Context, tx *store.Tx) error {
			out, err := s.backlog.Request(ctx, tx, []backlog.Request{r})
			require.True(t, err != nil || out[0].Known)
			return err
		}))
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

// A task may end at the moment at which it is asked for again. The end comes first, and is
// what the new request is answered with.
func TestATaskEndsWhileItIsAskedForAgain(t *testing.T) {
	t.Parallel()
	side := newSide(t)
	s := scene{t, side, boardOf(t, side, backlog.MainWorkspace)}
	r := s.asked()
	held, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- s.DB.Tx(context.WithoutCancel(t.Context()), "ending", func(ctx context.Context, tx *store.Tx) error {
			_, err := tx.Exec(ctx, `UPDATE tasks SET priority = 1 WHERE id = $1`, r.Spawn.Task)
			if err == nil {
				_, err = tx.Exec(ctx, `UPDATE task_bodies SET result = jsonb_build_object('task', $1::text, 'state', 'completed') WHERE task = $1::uuid`, r.Spawn.Task)
			}
			close(held)
			time.Sleep(time.Second) // in which the request comes
			return err
		})
	}()
	<-held
	r.Asked = message()

	require.NoError(t, s.DB.Tx(t.Context(), "asking again", func(ctx context.Context, tx *store.Tx) error {
		out, err := s.backlog.Request(ctx, tx, []backlog.Request{r})
		if err == nil {
			require.NotNil(t, out[0].Result)
		}
		return err
	}))

	require.NoError(t, <-ended)
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
	require.NoError(t, s.DB.Tx(t.Context(), "asking", func(ctx context.Context, tx *store.Tx) error {
		_, err := s.backlog.Request(ctx, tx, []backlog.Request{r})
		return err
	}))
	require.Len(t, s.claim(), 1)

	_, err := s.backlog.KillHere(t.Context(), backlog.HostKill{ID: storetest.NewID(), Task: r.Spawn.Task, Reason: "enough", Grace: time.Second, Actor: "ann"})

	require.NoError(t, err)
	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM tasks WHERE id = $1 AND reason = 'operator'`, r.Spawn.Task))
}
