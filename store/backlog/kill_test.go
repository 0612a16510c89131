package backlog_test

import (
	"context"
	"testing"

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
