package spoke_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
	"github.com/spawnmesh/spawnmesh/store"
)

// A hub that has lost an agent, and refuses what is told of it, is shown on the agent's host.
func TestTheHostSeesReportsOfAnAgentThatItsHubHasLost(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	task := sleeper(t, m)
	m.Hub.Exec(t, `DELETE FROM mirrors WHERE task = $1`, task)

	m.Spokes["attic"].Do(t, "POST", "/api/v1/tasks/"+task+"/kill", map[string]any{"reason": "enough", "grace_ms": 0}, nil)

	var v struct {
		State   commands.State
		Refused []store.RefusedReport `json:"refused_reports"`
	}
	meshtest.Await(t, "the refusal in the status", func() bool {
		m.Spokes["attic"].Do(t, "GET", "/api/v1/tasks/"+task, nil, &v)
		return len(v.Refused) > 0
	})
	require.Equal(t, commands.Cancelled, v.State)
	for _, r := range v.Refused {
		require.Equal(t, string(commands.UnknownTask), r.Code)
	}
	require.Equal(t, store.Active, m.View(t, "attic").State, "it has done nothing wrong")
}
