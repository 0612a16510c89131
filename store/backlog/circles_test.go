package backlog_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// Tasks that wait for each other, as nobody here can have them, are failed by name, once. What waits for them, or what they
// wait for besides, is in no circle.
func TestImportedCirclesAreFailed(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	b := boardOf(t, s, backlog.MainWorkspace)
	ids := map[string]string{}
	for _, key := range []string{"root", "a", "b", "c", "d", "e", "leaf", "chain"} {
		ids[key] = create(t, b, backlog.TaskSpec{Key: key, Title: "t"})[0].ID
	}
	link := func(from, to string) { require.NoError(t, b.Link(t.Context(), from, to)) }
	link("a", "b")
	link("b", "c")
	link("c", "root")
	link("d", "e")
	link("leaf", "a")
	link("d", "leaf") // between two circles
	link("chain", "root")
	none, err := s.backlog.FailCircles(t.Context())
	require.NoError(t, err)
	require.Empty(t, none)
	for _, edge := range [][2]string{{"c", "a"}, {"e", "d"}} {
		s.imported(t, ids[edge[0]], ids[edge[1]])
	}

	failed, err := s.backlog.FailCircles(t.Context())

	require.NoError(t, err)
	require.ElementsMatch(t, []string{ids["a"], ids["b"], ids["c"], ids["d"], ids["e"]}, failed)
	for key, why := range map[string]string{"a": "a, b, c", "b": "a, b, c", "c": "a, b, c", "d": "d, e", "e": "d, e"} {
		require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM tasks WHERE id = $1 AND state = 'failed' AND reason = 'dependency_cycle'`, ids[key]), key)
		require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM audit WHERE action = 'task.failed' AND object = $1 AND code = 'dependency_cycle' AND why = 'these tasks wait for each other: ' || $2`, ids[key], why), key)
	}
	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM tasks WHERE id = $1 AND state = 'queued' AND reason = 'dependency_failed'`, ids["leaf"]))
	failed, err = s.backlog.FailCircles(t.Context())
	require.NoError(t, err)
	require.Empty(t, failed, "once")
	require.ElementsMatch(t, []string{"root"}, keysOf(claimCards(t, b, func(c *backlog.ClaimTerms) { c.Limit = 10 })))
}

func keysOf(list []backlog.Claimed) (keys []string) {
	for _, c := range list {
		keys = append(keys, c.Key)
	}
	return keys
}

// imported has a task wait for another one as rows from elsewhere may say, whatever circle that closes.
func (s *side) imported(t testing.TB, task, dependency string) {
	t.Helper()
	require.NoError(t, s.Exec(`INSERT INTO dependencies (task, dependency, workspace) VALUES ($1, $2, 'main')`, task, dependency))
	require.NoError(t, s.Exec(`DELETE FROM ready WHERE task = $1`, task))
	require.NoError(t, s.Exec(`INSERT INTO parked (task, workspace, lane, why, phase) SELECT id, workspace, lane, 'deps', phase FROM tasks WHERE id = $1 ON CONFLICT DO NOTHING`, task))
	require.NoError(t, s.Exec(`UPDATE tasks SET unmet = unmet + 1 WHERE id = $1`, task))
}
