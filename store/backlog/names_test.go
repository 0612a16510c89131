package backlog_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// Locks of the server are few, and everybody's: a call takes a bounded number of
// them, however many names it gives.
func TestTheLargestCallMayNameAllItsTasks(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	b := boardOf(t, s, backlog.MainWorkspace)
	specs := make([]backlog.TaskSpec, 10_000)
	for i := range specs {
		specs[i] = backlog.TaskSpec{Key: fmt.Sprintf("key %d", i), IdempotencyKey: fmt.Sprintf("idem %d", i), Title: "t"}
	}
	admin := owner(t, s.URL)
	_, err := admin.Exec(t.Context(), `BEGIN; LOCK TABLE task_bodies`)
	require.NoError(t, err)
	created := make(chan error, 1)

	go func() {
		_, err := b.Create(t.Context(), specs...)
		created <- err
	}()
	locks := 0
	require.Eventually(t, func() (waits bool) {
		require.NoError(t, admin.QueryRow(t.Context(), `SELECT count(*) FILTER (WHERE locktype = 'advisory'), coalesce(bool_or(NOT granted AND relation = 'task_bodies'::regclass), false)
			FROM pg_locks WHERE database = (SELECT oid FROM pg_database WHERE datname = current_database())`).Scan(&locks, &waits))
		return waits || len(created) > 0
	}, 5*time.Minute, 50*time.Millisecond, "the call holds its names")
	_, err = admin.Exec(t.Context(), `COMMIT`)
	require.NoError(t, err)

	require.NoError(t, <-created)
	require.Less(t, locks, 300)
	require.Equal(t, 10_000, s.Count(t, `SELECT count(*) FROM tasks`))
}
