package meshtest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
)

// A host finds by its short id also what it has refused, of which it keeps nothing but the row of the audit.
func TestARefusedOrderIsInTheAuditOfItsHost(t *testing.T) {
	t.Parallel()
	m := Plan{Policy: Loose(policy.Presets["deny"])}.Start(t, "attic")
	task := m.Noop(t, "attic")
	require.Equal(t, commands.Unavailable, m.Wait(t, task).State)
	for name, i := range map[string]*Instance{"hub": m.Hub.Instance, "attic": m.Spokes["attic"].Instance} {
		var whole, short api.AuditList
		i.Do(t, "GET", api.Base+"/audit?object="+task, nil, &whole)
		i.Do(t, "GET", api.Base+"/audit?object="+commands.ShortID(task), nil, &short)

		require.NotEmpty(t, short.Items, name)
		require.Equal(t, whole, short, name)
		require.Equal(t, string(map[string]commands.Code{"hub": commands.Code(commands.PolicyDenied), "attic": commands.Policy}[name]), short.Items[len(short.Items)-1].Code)
	}
}

// The audit of a workspace is read to its end, page by page, while it grows.
func TestTheAuditOfAWorkspacePageByPage(t *testing.T) {
	t.Parallel()
	m := Start(t)
	made := 0
	act := func() {
		made++
		m.Hub.Do(t, "POST", api.Base+"/workspaces/main/tasks", map[string]any{"items": []any{map[string]any{"key": fmt.Sprint("K", made), "title": "x"}}}, nil)
	}
	for range 5 {
		act()
	}
	var whole api.AuditList
	m.Hub.Do(t, "GET", api.Base+"/workspaces/main/audit", nil, &whole)
	require.Empty(t, whole.Next)
	var rows []api.AuditRow
	for cursor, first := "", true; first || cursor != ""; first = false {
		var page api.AuditList
		m.Hub.Do(t, "GET", api.Base+"/workspaces/main/audit?limit=2&cursor="+cursor, nil, &page)
		rows, cursor = append(page.Items, rows...), page.Next
		act()
	}
	require.Equal(t, whole.Items, rows)
	require.ErrorContains(t, m.Hub.Ask(t, "GET", api.Base+"/workspaces/main/audit?cursor=x", nil, nil), "is not the next of a list")
}
