package spoke_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
	"github.com/spawnmesh/spawnmesh/store"
)

// delivering orders an agent whose work is reviewed, and waits until it is.
func delivering(t *testing.T, m *meshtest.Mesh, argv ...string) string {
	t.Helper()
	task := m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeExec, Argv: argv, Review: true}})
	m.Await(t, task, commands.InReview)
	return task
}

// review says what came of a review.
func review(t *testing.T, m *meshtest.Mesh, task string, attempt int, verdict, message string) error {
	t.Helper()
	return m.Hub.Ask(t, "POST", "/api/v1/tasks/"+task+"/review", api.ReviewRequest{Attempt: attempt, Verdict: api.ReviewRequestVerdict(verdict), Message: message}, nil)
}

// What an agent has delivered waits, and holds no slot. A review sends it back with its message and without a retry; what is approved has
// completed, and so has its result.
func TestWhatIsDeliveredIsReviewed(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	s := m.Spokes["attic"]
	task := delivering(t, m, "sh", "-c", `echo "$SPAWNMESH_REVIEW:"; [ -z "$SPAWNMESH_PROMPT_FILE" ] || cat "$SPAWNMESH_PROMPT_FILE"`)

	v := m.Agent(t, task)
	require.Equal(t, []any{"in_review", 1, (*int)(nil) != v.ExitCode}, []any{v.Sentence(), v.Attempt, true})
	require.Equal(t, 0, s.Count(t, `SELECT count(*) FROM leases`))
	require.Equal(t, commands.Conflict, commands.CodeOf(review(t, m, task, 2, commands.Approve, "")), "no attempt 2 has delivered anything")
	require.Equal(t, commands.Conflict, commands.CodeOf(review(t, m, task, 1, commands.Merged, "")), "it is not approved")
	require.Equal(t, commands.Validation, commands.CodeOf(review(t, m, task, 1, commands.RequestChanges, "")), "it says nothing")

	require.NoError(t, review(t, m, task, 1, commands.RequestChanges, "name it better"))

	meshtest.Await(t, "attempt 2 is in review", func() bool { v = m.Agent(t, task); return v.State == commands.InReview && v.Attempt == 2 })
	require.Equal(t, ":\nchanges:\nname it better", m.Stdout(t, task, false))
	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM tasks WHERE id = $1 AND retries = 0 AND reworks = 1`, task))
	err := review(t, m, task, 1, commands.Approve, "")
	require.Equal(t, commands.Conflict, commands.CodeOf(err), "the review of an older attempt")
	require.NoError(t, review(t, m, task, 2, commands.Approve, ""))
	require.NoError(t, review(t, m, task, 2, commands.Approve, ""), "it is said once more")
	require.Equal(t, commands.Conflict, commands.CodeOf(review(t, m, task, 2, commands.RequestChanges, "no")))

	v = m.Wait(t, task)
	require.Equal(t, []any{commands.Completed, 2}, []any{v.State, v.Attempt})
	r, ok := commands.ReadResult(v.Result)
	require.True(t, ok)
	require.Equal(t, []any{commands.Completed, commands.Succeeded, 0, "completed"}, []any{r.State, r.Outcome, r.Exit.Code, r.Summary})
	require.Equal(t, store.PauseTaken, store.ReadReview(v.Review).State)
	m.Check(t)
}

// What is decided while the spoke is away is told when that is back, and another decision is refused meanwhile, also by the other side.
func TestReviewsWaitForTheirSpoke(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	s := m.Spokes["attic"]
	task := delivering(t, m, "true")
	killed := delivering(t, m, "true")
	m.Stop(t, "attic")

	require.NoError(t, review(t, m, task, 1, commands.Approve, ""))
	require.NoError(t, m.Hub.Ask(t, "POST", "/api/v1/tasks/"+killed+"/kill", api.KillRequest{Reason: "not wanted"}, nil))

	v := m.Agent(t, task)
	require.Equal(t, []string{string(commands.Approved), store.PauseSent}, []string{string(v.State), store.ReadReview(v.Review).State})
	require.Equal(t, commands.Conflict, commands.CodeOf(review(t, m, task, 1, commands.RequestChanges, "no")))
	m.Start(t, "attic")
	require.Equal(t, commands.Completed, m.Wait(t, task).State)
	v = m.Wait(t, killed)
	r, _ := commands.ReadResult(v.Result)
	require.Equal(t, []any{commands.Cancelled, commands.Succeeded, commands.KillRequested}, []any{v.State, r.Outcome, r.Reason}, "what it has delivered stays")
	_, err := os.Stat(filepath.Join(s.Dir, "agents", killed))
	require.NoError(t, err)
	m.Check(t)
}
