package meshtest

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
)

// A hub checks labels itself, whoever sends them.
func TestLabelsOfAnyClientAreChecked(t *testing.T) {
	t.Parallel()
	m := Start(t, "attic")
	d := m.Hub.describe(t)
	for _, labels := range []string{`{"a b":"x"}`, `{"":"x"}`, `{"a":"x\ny"}`, `{"a\u0000":"x"}`, `{"a":1}`, `["a"]`} {
		status, said := d.ask(t, "POST", api.Base+"/tasks", "application/json", `{"runtime":"noop","spoke":"attic","labels":`+labels+`}`)

		require.Equal(t, http.StatusBadRequest, status, "%s: %s", labels, said)
		var p api.Problem
		require.NoError(t, json.Unmarshal(said, &p))
		require.Equal(t, string(commands.Validation), p.Code)
	}
	status, said := d.ask(t, "POST", api.Base+"/tasks", "application/json", `{"runtime":"noop","spoke":"attic","labels":{"app":"web","empty":""}}`)
	require.Equal(t, http.StatusOK, status, "%s", said)
	var made api.TaskCreated
	require.NoError(t, json.Unmarshal(said, &made))
	require.Equal(t, commands.Labels{"app": "web", "empty": ""}, m.Wait(t, made.ID).Labels)
}
