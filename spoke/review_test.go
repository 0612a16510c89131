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
	meshtest.Await(t, "its output has come", func() bool { return m.Stdout(t, task, false) == ":\nchanges:\nname it better" })
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
	back := delivering(t, m, "true")
	m.Stop(t, "attic")
	require.NoError(t, review(t, m, back, 1, commands.RequestChanges, "name it better"))
	require.NoError(t, review(t, m, back, 1, commands.RequestChanges, "name it better"), "it is said once more")
	require.Equal(t, commands.Conflict, commands.CodeOf(review(t, m, back, 1, commands.RequestChanges, "and test it")), "the agent goes on with other words")

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
	meshtest.Await(t, "attempt 2 is in review", func() bool { v = m.Agent(t, back); return v.State == commands.InReview && v.Attempt == 2 })
	require.NoError(t, review(t, m, back, 2, commands.Approve, ""))
	require.Equal(t, commands.Completed, m.Wait(t, back).State)
	m.Check(t)
}

// What waits for its review does not run again at a spoke that was restored to before its order, whether its directory is there or not.
func TestWhatIsReviewedDoesNotRunAgain(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	s := m.Spokes["attic"]
	m.Stop(t, "attic")
	backup := s.Backup(t)
	m.Start(t, "attic")
	m.AwaitLink(t, "attic")
	trace := filepath.Join(t.TempDir(), "trace")
	there, gone := delivering(t, m, "sh", "-c", `echo ran >>"$0"`, trace), delivering(t, m, "sh", "-c", `echo ran >>"$0"`, trace)
	m.Stop(t, "attic")
	s.Restore(t, backup)
	require.NoError(t, os.RemoveAll(filepath.Join(s.Dir, "agents", gone)))

	m.Start(t, "attic")

	meshtest.Await(t, "the restored spoke has found what was delivered", func() bool {
		return s.Count(t, `SELECT count(*) FROM tasks WHERE id = $1 AND state = 'in_review' AND attempt = 1`, there) == 1
	})
	require.Equal(t, commands.Failed, m.Wait(t, gone).State)
	ran, err := os.ReadFile(trace)
	require.NoError(t, err)
	require.Equal(t, "ran\nran\n", string(ran))
	require.NoError(t, review(t, m, there, 1, commands.Approve, ""))
	require.Equal(t, commands.Completed, m.Wait(t, there).State)
	m.Check(t)
}

// What was approved waits for its review again where its spoke has refused that.
func TestAnApprovalThatIsRefused(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	s := m.Spokes["attic"]
	task := delivering(t, m, "true")
	s.Exec(t, `UPDATE grants SET kinds = array_remove(kinds, 'agent.review')`)

	require.NoError(t, review(t, m, task, 1, commands.Approve, ""))

	meshtest.Await(t, "the approval is refused", func() bool {
		o := store.ReadReview(m.Agent(t, task).Review)
		return o != nil && o.State == store.PauseRefused
	})
	require.Equal(t, commands.InReview, m.Agent(t, task).State)
	s.Exec(t, `UPDATE grants SET kinds = kinds || '{agent.review}'`)
	require.NoError(t, review(t, m, task, 1, commands.Approve, ""))
	require.Equal(t, commands.Completed, m.Wait(t, task).State)
	m.Check(t)
}

// An approval that its spoke has not taken when it is restored to before its order reaches it when it knows again what was delivered.
func TestAnApprovalOutlivesARestoreOfItsSpoke(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	s := m.Spokes["attic"]
	m.Stop(t, "attic")
	backup := s.Backup(t)
	m.Start(t, "attic")
	m.AwaitLink(t, "attic")
	task := delivering(t, m, "true")
	m.Stop(t, "attic")
	require.NoError(t, review(t, m, task, 1, commands.Approve, ""))
	s.Restore(t, backup)

	m.Start(t, "attic")

	require.Equal(t, commands.Completed, m.Wait(t, task).State)
	require.Equal(t, store.PauseTaken, store.ReadReview(m.Agent(t, task).Review).State)
	m.Check(t)
}

// An order whose work is to be reviewed is refused at once where the grant allows no review: nobody could end it but by a kill.
func TestAnOrderThatNobodyMayReview(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	m.AwaitLink(t, "attic")
	m.Stop(t, "attic")
	task := m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeExec, Argv: []string{"true"}, Review: true}}) // the hub does not know yet
	m.Spokes["attic"].Exec(t, `UPDATE grants SET kinds = array_remove(kinds, 'agent.review')`)

	m.Start(t, "attic")

	v := m.Wait(t, task)

	require.Equal(t, []any{commands.Unavailable, commands.GrantDenied}, []any{v.State, v.Reason})
	require.Contains(t, v.Refusals[0].Why, "does not allow agent.review, and the order asks for a review")
	require.Equal(t, commands.Completed, m.Wait(t, m.Spawn(t, "attic", "true")).State, "other orders run")
	m.Check(t)
}

// A rework above the limit is refused by its spoke: the work stays in review, and can be approved.
func TestReworksHaveALimit(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	s := m.Spokes["attic"]
	task := delivering(t, m, "true")
	s.Exec(t, `UPDATE tasks SET reworks = $2 WHERE id = $1`, task, commands.MaxReworks)

	require.NoError(t, review(t, m, task, 1, commands.RequestChanges, "once more"))

	meshtest.Await(t, "it is refused", func() bool {
		o := store.ReadReview(m.Agent(t, task).Review)
		return o != nil && o.State == store.PauseRefused && o.Code == commands.TooMany
	})
	require.Equal(t, commands.InReview, m.Agent(t, task).State)
	require.NoError(t, review(t, m, task, 1, commands.Approve, ""))
	require.Equal(t, commands.Completed, m.Wait(t, task).State)
	m.Check(t)
}
