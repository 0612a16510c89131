package backlog_test

import (
	"fmt"
	"testing"

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
	_, err := admin.Exec(t.Context(), `CREATE TABLE locks_held (n int);
		CREATE FUNCTION note_locks() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = public AS
			$$ BEGIN INSERT INTO locks_held SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid(); RETURN NULL; END $$;
		CREATE TRIGGER note_locks BEFORE INSERT ON tasks EXECUTE FUNCTION note_locks()`)
	require.NoError(t, err)

	_, err = b.Create(t.Context(), specs...)

	require.NoError(t, err)
	var locks int
	require.NoError(t, admin.QueryRow(t.Context(), `SELECT max(n) FROM locks_held`).Scan(&locks))
	require.Greater(t, locks, 100, "it holds its names")
	require.Less(t, locks, 300)
	require.Equal(t, 10_000, s.Count(t, `SELECT count(*) FROM tasks`))
}
