package spoke_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
	"github.com/spawnmesh/spawnmesh/spoke"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// A claim that was done although it looked failed is found after the next one
// that fails, while the spoke runs.
func TestAClaimWhoseAnswerWasLostIsWorkedOn(t *testing.T) {
	t.Parallel()
	m := meshtest.Plan{Slots: 1}.Start(t, "attic")
	s := m.Spokes["attic"]
	first := sleeper(t, m)
	lost, next := m.Noop(t, "attic"), ""
	meshtest.Await(t, "the order", func() bool { return s.Count(t, `SELECT count(*) FROM ready`) == 1 })
	db := s.Open(t)
	defer db.Close()
	claimed, err := backlog.Open(db, spoke.Answer).Claim(t.Context(), backlog.ClaimTerms{Owner: string(s.Keys.InstanceID()), Lease: time.Hour})
	require.NoError(t, err)
	require.Len(t, claimed, 1)
	s.Exec(t, `CREATE FUNCTION no_claim() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'the test says so'; END $$`)
	s.Exec(t, `CREATE TRIGGER no_claim BEFORE DELETE ON ready FOR EACH ROW EXECUTE FUNCTION no_claim()`)
	next = m.Noop(t, "attic")

	m.Hub.Do(t, "POST", "/api/v1/tasks/"+first+"/kill", map[string]any{"reason": "enough", "grace_ms": 0}, nil)

	require.Equal(t, commands.Completed, m.Wait(t, lost).State)
	require.Equal(t, commands.Queued, m.Agent(t, next).State)
	s.Exec(t, `DROP TRIGGER no_claim ON ready`)
	require.Equal(t, commands.Completed, m.Wait(t, next).State)
	m.Check(t)
}

// A lease of the spoke that ran out while it was away is its own to judge: whoever
// sweeps its backlog leaves it, and a spoke that comes back goes on with the agent.
func TestAnAgentThatOutlivesItsSpokesLeaseIsNotRunAgain(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	s := m.Spokes["attic"]
	task := m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeExec, Argv: []string{"sleep", "600"}, MaxRetries: 5}})
	m.Await(t, task, commands.Running)
	m.Stop(t, "attic")
	db := s.Open(t)
	defer db.Close()
	b := backlog.Open(db, spoke.Answer)
	ws, err := b.Workspace(backlog.MainWorkspace, "test")
	require.NoError(t, err)
	_, err = ws.Create(t.Context(), backlog.TaskSpec{Title: "a worker's"})
	require.NoError(t, err)
	claimed, err := ws.Claim(t.Context(), backlog.ClaimTerms{Owner: "a worker", Lease: time.Hour})
	require.NoError(t, err)
	require.Len(t, claimed, 1)
	s.Exec(t, `UPDATE leases SET (until, sweep_at) = (clock_timestamp() - interval '1 minute', '-infinity')`)

	swept, err := b.Sweep(t.Context(), time.Second)

	require.NoError(t, err)
	require.Equal(t, 1, swept.Reclaimed, "the worker's alone")
	_, err = ws.Cancel(t.Context(), backlog.Act{Task: claimed[0].Fence.Task, Reason: "it was for that only"})
	require.NoError(t, err)
	m.Start(t, "attic")
	m.AwaitLink(t, "attic")
	meshtest.Await(t, "its renewal", func() bool { return s.Count(t, `SELECT count(*) FROM leases WHERE until > clock_timestamp()`) == 1 })
	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM attempts WHERE task = $1`, task))
	m.Hub.Do(t, "POST", "/api/v1/tasks/"+task+"/kill", map[string]any{"reason": "enough", "grace_ms": 0}, nil)
	m.Wait(t, task)
	m.Check(t)
}

// An agent whose fence holds no longer is ended soon, however long its lease is. The attempt that holds its task by then is left as it
// is: the end of the older one is recorded nowhere, and told to nobody.
func TestALostFenceEndsTheAgent(t *testing.T) {
	t.Parallel()
	m := meshtest.Plan{Lease: time.Hour}.Start(t, "attic")
	s := m.Spokes["attic"]
	task := sleeper(t, m)

	s.Exec(t, `UPDATE leases SET epoch = epoch + 1, owner = 'somebody else', until = 'infinity'`)

	meshtest.Await(t, "its end", func() bool {
		var now api.Instance
		s.Do(t, "GET", "/api/v1/instance", nil, &now)
		return now.Running == 0
	})
	meshtest.Await(t, "the line in the log", func() bool {
		return strings.Contains(s.Log.String(), "agent ended after it had lost its lease; its end does not count")
	})
	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM leases WHERE task = $1 AND attempt = 1 AND owner = 'somebody else' AND epoch = (SELECT epoch + 2 FROM tasks WHERE id = $1)`, task))
	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM tasks WHERE id = $1 AND state = 'queued' AND attempt = 0 AND retries = 0 AND last_outcome IS NULL`, task))
	require.Zero(t, s.Count(t, `SELECT count(*) FROM ended_attempts`))
	require.Zero(t, s.Count(t, `SELECT count(*) FROM audit WHERE object = $1 AND why LIKE 'attempt 1 %' AND action <> 'task.claimed'`, task))
	v := m.Agent(t, task)
	require.Equal(t, []any{commands.Running, 1}, []any{v.State, v.Attempt})
}
