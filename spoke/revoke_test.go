package spoke_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
	"github.com/spawnmesh/spawnmesh/spoke"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
)

// endsAs is an agent that ends with a code once the test opens its gate.
func endsAs(t *testing.T, m *meshtest.Mesh, code string, retries int) (task string, open func()) {
	t.Helper()
	gate := filepath.Join(t.TempDir(), "gate")
	task = m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeExec, MaxRetries: retries,
		Argv: []string{"sh", "-c", `while [ ! -e "$0" ]; do sleep 0.05; done; echo done; exit ` + code, gate}}})
	m.Await(t, task, commands.Running)
	return task, func() { require.NoError(t, os.WriteFile(gate, nil, 0o644)) }
}

// Where the policy lets them, agents of a revoked hub end by themselves, across a
// restart of the spoke, too. Their results stay here: neither the hub that ordered
// them nor a new connection with it is told. They are not tried again, and what
// had not started never does.
func TestAgentsOfARevokedHubFinish(t *testing.T) {
	t.Parallel()
	m := meshtest.Plan{Slots: 2, Policy: meshtest.Loose(policy.Presets["open"]) + "on_revoke: finish\n"}.Start(t, "attic")
	s := m.Spokes["attic"]
	well, openWell := endsAs(t, m, "0", 0)
	badly, openBadly := endsAs(t, m, "3", 5)
	waits := m.Noop(t, "attic")
	meshtest.Await(t, "the third order", func() bool { return m.Agent(t, waits).AcceptedAt != nil })

	s.Turn(t, "revoke")

	view := func(task string) (v spoke.AgentView) {
		s.Do(t, "GET", "/api/v1/tasks/"+task, nil, &v)
		return v
	}
	require.Equal(t, commands.Cancelled, view(waits).State)
	m.Stop(t, "attic")
	m.Start(t, "attic")
	openWell()
	openBadly()
	meshtest.Await(t, "their ends", func() bool { return view(well).State.Terminal() && view(badly).State.Terminal() })
	require.Equal(t, commands.Completed, view(well).State)
	require.Equal(t, commands.Failed, view(badly).State)
	require.Equal(t, 1, view(badly).Attempt)
	require.Equal(t, 3, *view(badly).ExitCode)
	m.Stop(t, "attic")
	joined, err := s.JoinWith(t, m.Token(t, "attic", s.Proxy))
	require.NoError(t, err)
	m.Start(t, "attic")
	m.AwaitLink(t, "attic")
	require.Equal(t, commands.Completed, m.Wait(t, m.Noop(t, "attic")).State)
	for _, task := range []string{well, badly} {
		require.Equal(t, commands.LinkRevoked, m.Agent(t, task).Reason)
		require.Zero(t, s.Count(t, `SELECT count(*) FROM outbox WHERE task = $1 AND (conn = $2 OR kind = 'agent.result')`, task, joined.Connection.ID))
	}
}
