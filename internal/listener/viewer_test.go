package listener_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/hub/api"
)

// spawned orders an agent over the network, and returns its id.
func (p *program) spawned(t *testing.T, order string) string {
	t.Helper()
	status, _, said := p.ask(t, "POST", api.Base+"/tasks", order)
	require.Equal(t, 200, status, said)
	var made api.TaskCreated
	require.NoError(t, json.Unmarshal([]byte(said), &made))
	return made.ID
}

// What tells agents apart that one text names is shown to everybody who may name an agent: no command is in it.
func TestAPartOfAnIDShowsNoCommand(t *testing.T) {
	t.Parallel()
	m := start(t, "attic")
	operator := asks(t, m, token(t, m, "ci", api.Operator, api.Everywhere).Token, 2)
	viewer := asks(t, m, token(t, m, "board", api.Viewer, api.Everywhere).Token, 3)
	const part = "01a2199f-0000-7000-8000-00000000000"
	for _, last := range []string{"1", "2"} {
		m.Wait(t, operator.spawned(t, `{"spoke":"attic","id":"`+part+last+`","runtime":"exec","argv":["sh","-c","echo the-secret-of-the-agent"]}`))
	}
	m.Wait(t, operator.spawned(t, `{"spoke":"attic","title":"night","runtime":"noop"}`))
	m.Wait(t, operator.spawned(t, `{"spoke":"attic","title":"night","runtime":"noop"}`))

	for _, path := range []string{"/tasks/" + part, "/tasks/" + part + "?receipts=true", "/tasks/" + part + "/why", "/tasks/night"} {
		status, code, said := viewer.ask(t, "GET", api.Base+path, "")
		if path != "/tasks/"+part+"/why" {
			require.Equal(t, 400, status, "%s: %s", path, said)
			require.Equal(t, "AMBIGUOUS", code, path)
		}
		require.NotContains(t, said, "the-secret-of-the-agent", path)
	}
	err := m.Spokes["attic"].Ask(t, "GET", api.Base+"/tasks/"+part, nil, nil)
	require.ErrorContains(t, err, "names several agents: 00000002, 00000001")
}

// Who asks an instance for what another one does is not told where that instance keeps its files.
func TestARefusalNamesNoDirectory(t *testing.T) {
	t.Parallel()
	m := start(t, "attic")
	viewer := asks(t, m, token(t, m, "board", api.Viewer, api.Everywhere).Token, 2)

	status, _, said := viewer.ask(t, "GET", api.Base+"/tasks/"+m.Noop(t, "attic")+"/why", "")

	require.Equal(t, 400, status)
	require.Contains(t, said, "this instance is a hub; this is asked of its spokes")
	require.NotContains(t, said, m.Hub.Dir)
}
