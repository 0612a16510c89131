package meshtest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
)

// What was meant for a spoke that is detached never goes to another one that has its name: neither a retry, nor an order by the exact id
// of the old connection, which beats the name. The name means the one that lives.
func TestADetachedSpokeIsNotReplacedByItsName(t *testing.T) {
	t.Parallel()
	m := Start(t, "attic")
	failed := m.Spawn(t, "attic", "sh", "-c", "exit 3")
	require.Equal(t, commands.Failed, m.Wait(t, failed).State)
	old := m.Spokes["attic"].Conn
	m.Turn(t, "attic", "revoke")
	m.Stop(t, "attic")
	delete(m.Spokes, "attic")
	heir := m.Add(t, "attic")

	err := m.Hub.Ask(t, "POST", "/api/v1/tasks/"+failed+"/retry", map[string]any{}, nil)
	require.Equal(t, commands.Conflict, commands.CodeOf(err), "%v", err)
	require.ErrorContains(t, err, "the connection with attic that it ran over is revoked")

	err = m.Hub.Ask(t, "POST", "/api/v1/tasks", hub.SpawnRequest{Spoke: old, Spawn: commands.Spawn{Runtime: commands.RuntimeNoop}}.Revealed(), nil)
	require.Error(t, err)
	require.NotEqual(t, commands.NotFound, commands.CodeOf(err), "%v", err)
	require.Zero(t, heir.Count(t, `SELECT count(*) FROM tasks`), "nothing came there")

	v := m.Wait(t, m.Noop(t, "attic"))
	require.Equal(t, commands.Completed, v.State)
	require.Equal(t, heir.Conn, v.Conn)
}
