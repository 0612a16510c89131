package backlog_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store"
)

// The numbers of a connection are locked last of all: who waits for a row of a recall, or has one that it waits for, never waits for these, too.
func TestARecallLocksTheNumbersLast(t *testing.T) {
	t.Parallel()
	s, _ := told(t)
	s.Meet(t, store.Obeys)
	s.restored()
	unknown, from := storetest.NewID(), int64(s.Count(t, `SELECT recall_from FROM sequences`))
	hold, watcher := owner(t, s.URL), owner(t, s.URL)
	tx, err := hold.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `INSERT INTO recalled (task, conn, attempt, over) VALUES ($1, $2, 0, true)`, unknown, s.Conn.ID)
	require.NoError(t, err)
	recalled := make(chan error, 1)
	go func() {
		recalled <- s.page(commands.Recalled{From: from, Through: from, Done: true, Tasks: []commands.TaskStanding{{Task: unknown, State: commands.Queued, Code: -1}}})
	}()
	eventually(t, "the recall waits", func() bool { return locked(t, watcher) || len(recalled) > 0 })

	var free int
	require.NoError(t, watcher.QueryRow(t.Context(), `SELECT count(*) FROM (SELECT FROM sequences FOR UPDATE SKIP LOCKED) AS free`).Scan(&free))
	require.NoError(t, tx.Rollback(t.Context()))

	require.NoError(t, <-recalled)
	require.Equal(t, 1, free)
	require.Equal(t, 1, s.Count(t, `SELECT recalled_unknown FROM sequences`))
}
