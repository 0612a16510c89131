package backlog_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// What follows from the end of a task is looked up by the task, also where the statement was planned while nobody waited for one, and while
// no question was open; so are the places of tasks that are pulled or held, also by who sees one workspace alone.
func TestWhatFollowsFromAnEndIsFoundByItsTask(t *testing.T) {
	t.Parallel()
	side := newSide(t)
	s := scene{t, side, boardOf(t, side, backlog.MainWorkspace)}
	var list []string
	for _, name := range []string{"free", "dependents_to_cancel", "waiting_dependents", "withdraw_recalled", "resolve", "blocks", "hold_ready", "pull_ready", "expire_waiting", "left_before", "keep_left", "note_left"} {
		list = append(list, backlog.StatementForTest(name))
	}
	s.FindsByKey(t, list...)
	s.FindsByKeyIn(t, "main", list...)
	s.Meet(t, store.Obeys)
	for range 20 {
		require.Nil(t, s.asks(s.request())[0].Refusal)
	}
	s.exec(`INSERT INTO questions (id, workspace, task, attempt, key, question, options, fallback, data, deadline, outcome, answered_at)
		SELECT gen_random_uuid(), 'main', gen_random_uuid(), 1, 'k', 'q', '{}', '', '', now(), 'answered', now() FROM generate_series(1, 1000)`)
	s.exec(`INSERT INTO dependencies (task, dependency, workspace) SELECT a.id, b.id, 'main' FROM (SELECT id FROM tasks ORDER BY id LIMIT 2) AS a, (SELECT id FROM tasks ORDER BY id DESC LIMIT 2) AS b`)
	_, err := owner(t, s.URL).Exec(t.Context(), `ANALYZE questions, dependencies`)
	require.NoError(t, err)

	s.FindsByKey(t, list...)
	s.FindsByKeyIn(t, "main", list...)
}
