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
)

// overrunning is a mesh whose spoke warns half a second after an estimate, and ends an agent as long after that.
func overrunning(t *testing.T) (*meshtest.Mesh, *meshtest.Spoke) {
	t.Helper()
	m := meshtest.Plan{Overrun: 500 * time.Millisecond}.Start(t, "attic")
	return m, m.Spokes["attic"]
}

// estimated orders an agent that is thought to take a moment.
func estimated(t *testing.T, m *meshtest.Mesh, script string, retries int) string {
	t.Helper()
	r := hub.SpawnRequest{Spoke: "attic", Spawn: shell(script)}
	r.Spawn.EstimateMS, r.Spawn.MaxRetries = 100, retries
	return m.Order(t, r)
}

// An agent that takes much longer than estimated is warned of, at hub and host, and ended where it tells no progress: it has failed, runs again
// as its order says, and has completed where it ends well in the time that it is given.
func TestAnAgentThatOverrunsItsEstimateIsEnded(t *testing.T) {
	t.Parallel()
	m, s := overrunning(t)
	fails, well := estimated(t, m, "sleep 600", 1), estimated(t, m, "trap 'exit 0' TERM; while :; do sleep 0.1; done", 0)
	quick := m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: shell("sleep 3")})
	meshtest.Await(t, "the warning at the hub", func() bool {
		var v api.Task
		var why api.TaskWhy
		m.Hub.Do(t, "GET", "/api/v1/tasks/"+fails, nil, &v)
		m.Hub.Do(t, "GET", "/api/v1/tasks/"+fails+"/why", nil, &why)
		return v.Overrun && len(why.Reasons) > 1 && strings.Contains(why.Reasons[1].Text, "much longer than estimated")
	})

	meshtest.Await(t, "the first end", func() bool {
		return s.Count(t, `SELECT count(*) FROM ended_attempts WHERE task = $1 AND outcome = 'failed'`, fails) == 1
	})
	v := m.Agent(t, fails)
	require.False(t, v.State.Terminal())
	s.Exec(t, `UPDATE tasks SET not_before = NULL`)
	s.Exec(t, `UPDATE due SET at = now()`)

	v = m.Wait(t, fails)
	require.Equal(t, commands.Failed, v.State)
	require.Equal(t, commands.Overrun, v.Reason)
	require.Equal(t, 2, v.Attempt)
	require.Equal(t, "overran its estimate", v.Words())
	require.Equal(t, commands.Completed, m.Wait(t, well).State)
	require.Equal(t, commands.Completed, m.Wait(t, quick).State, "what has no estimate is let alone")
	require.Contains(t, s.Log.String(), "an agent runs much longer than estimated")
	require.Equal(t, 4, s.Count(t, `SELECT count(*) FROM audit WHERE action = 'task.overrun' AND object = $1`, fails))
	m.Check(t)
}

// Progress puts the end off, for as long as an agent tells some.
func TestAnAgentThatTellsProgressMayOverrun(t *testing.T) {
	t.Parallel()
	m, s := overrunning(t)
	task := estimated(t, m, "sleep 600", 0)
	m.Await(t, task, commands.Running)
	c := doorOf(s, task, 1)
	for i := range int64(15) {
		require.NoError(t, c.Do(t.Context(), "POST", "/v1/progress", commands.Progress{Current: &i}, nil))
		time.Sleep(200 * time.Millisecond)
	}
	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM overruns WHERE task = $1 AND warned_at IS NOT NULL AND over_at IS NULL`, task))

	v := m.Wait(t, task)
	require.Equal(t, commands.Overrun, v.Reason)
}

// A spoke that is started again knows what it has warned of, and ends what became due meanwhile.
func TestAnOverrunOutlivesItsSpoke(t *testing.T) {
	t.Parallel()
	m, s := overrunning(t)
	task := estimated(t, m, "sleep 600", 0)
	warned := func() bool {
		return s.Count(t, `SELECT count(*) FROM overruns WHERE task = $1 AND warned_at IS NOT NULL`, task) == 1
	}
	meshtest.Await(t, "the warning", warned)
	m.Stop(t, "attic")
	s.Exec(t, `UPDATE overruns SET due = NULL, over_at = now() WHERE task = $1`, task)
	m.Start(t, "attic")

	v := m.Wait(t, task)
	require.Equal(t, commands.Failed, v.State)
	require.Equal(t, commands.Overrun, v.Reason)
}

// The host of an agent that overruns says since when, and until when it is to tell progress, which puts that off.
func TestTheTimesOfAnOverrunAreSaid(t *testing.T) {
	t.Parallel()
	m := meshtest.Plan{Overrun: 10 * time.Minute}.Start(t, "attic")
	s := m.Spokes["attic"]
	task := estimated(t, m, "sleep 600", 0)
	m.Await(t, task, commands.Running)
	m.Stop(t, "attic")
	s.Exec(t, `UPDATE overruns SET due = now() WHERE task = $1`, task)
	m.Start(t, "attic")
	var v api.Task
	read := func() bool {
		v = api.Task{}
		s.Do(t, "GET", "/api/v1/tasks/"+task, nil, &v)
		return v.Overrun
	}

	meshtest.Await(t, "the warning", read)

	require.WithinDuration(t, v.OverrunSince.Add(10*time.Minute), v.OverrunUntil, time.Second, "both are of one statement")
	var why api.TaskWhy
	s.Do(t, "GET", "/api/v1/tasks/"+task+"/why", nil, &why)
	require.Equal(t, "it runs much longer than estimated since "+v.OverrunSince.UTC().Format(time.RFC3339)+"; its spoke ends it at "+v.OverrunUntil.UTC().Format(time.RFC3339)+" where it tells no progress", why.Reasons[1].Text)
	before := v.OverrunUntil
	one := int64(1)
	require.NoError(t, doorOf(s, task, 1).Do(t.Context(), "POST", "/v1/progress", commands.Progress{Current: &one}, nil))
	require.True(t, read())
	require.True(t, v.OverrunUntil.After(before), "%s, and not %s", v.OverrunUntil, before)
}
