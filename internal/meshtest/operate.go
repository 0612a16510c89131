package meshtest

import (
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/store"
)

// Noop orders a task that starts no process, and returns its id.
func (m *Mesh) Noop(t testing.TB, name string) string {
	t.Helper()
	return m.Order(t, hub.SpawnRequest{Spoke: name, Spawn: commands.Spawn{Runtime: commands.RuntimeNoop}})
}

// Spawn orders an agent that runs argv, and returns its id.
func (m *Mesh) Spawn(t testing.TB, name string, argv ...string) string {
	t.Helper()
	return m.Order(t, hub.SpawnRequest{Spoke: name, Spawn: commands.Spawn{Runtime: commands.RuntimeExec, Argv: argv}})
}

// Order gives an order to the hub, and returns the task's id.
func (m *Mesh) Order(t testing.TB, r hub.SpawnRequest) string {
	t.Helper()
	var a hub.SpawnAnswer
	m.Hub.Do(t, "POST", "/api/v1/tasks", r.Revealed(), &a)
	return a.ID
}

// Agent returns what the hub knows of a task.
func (m *Mesh) Agent(t testing.TB, id string) hub.AgentView {
	t.Helper()
	var v hub.AgentView
	m.Hub.Do(t, "GET", "/api/v1/tasks/"+id, nil, &v)
	return v
}

// Wait waits until a task has ended, by the hub's word.
func (m *Mesh) Wait(t testing.TB, id string) hub.AgentView {
	t.Helper()
	var v hub.AgentView
	for until := time.Now().Add(Patience); ; {
		m.Hub.Do(t, "GET", "/api/v1/tasks/"+id+"?wait=10s", nil, &v)
		if v.State.Terminal() {
			return v
		}
		require.True(t, time.Now().Before(until), "task %s stays %s", id, v.State)
	}
}

// Await waits until a task is in state, by the hub's word.
func (m *Mesh) Await(t testing.TB, id string, state commands.State) {
	t.Helper()
	var v hub.AgentView
	for until := time.Now().Add(Patience); ; {
		if v = m.Agent(t, id); v.State == state {
			return
		}
		require.True(t, !v.State.Terminal() && time.Now().Before(until), "task %s is %s, not %s", id, v.State, state)
		m.Hub.Do(t, "GET", "/api/v1/tasks/"+id+"?wait=1s&since="+string(v.State), nil, &v)
	}
}

// View returns a spoke as the hub's operator sees it.
func (m *Mesh) View(t testing.TB, name string) hub.SpokeView {
	t.Helper()
	var v hub.SpokeView
	m.Hub.Do(t, "GET", "/api/v1/connections/"+url.PathEscape(name), nil, &v)
	return v
}

// AwaitLink waits until the hub sees a spoke linked and alive.
func (m *Mesh) AwaitLink(t testing.TB, name string) {
	t.Helper()
	Await(t, "the link of "+name, func() bool {
		v := m.View(t, name)
		return v.Linked && v.Liveness == hub.Alive
	})
}

// Turn changes the state of a connection at the hub: verb is suspend, resume or
// revoke.
func (m *Mesh) Turn(t testing.TB, name, verb string) store.Connection {
	t.Helper()
	var c store.Connection
	m.Hub.Do(t, "POST", "/api/v1/connections/"+name+"/"+verb, map[string]string{"reason": "the test says so"}, &c)
	return c
}

// A Turned is a connection as its host sees it after a change.
type Turned struct {
	store.Connection
	Untold bool // the hub may not know of it
}

// Turn changes the state of the connection with the hub on the spoke's side:
// verb is suspend, resume or revoke.
func (s *Spoke) Turn(t testing.TB, verb string) (c Turned) {
	t.Helper()
	s.Do(t, "POST", "/api/v1/connections/lab/"+verb, map[string]string{"reason": "the test says so"}, &c)
	return c
}
