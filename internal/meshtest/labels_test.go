package meshtest

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
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

// tasks asks for one page of agents.
func (d described) tasks(t *testing.T, query string) api.TaskList {
	t.Helper()
	status, said := d.ask(t, "GET", api.Base+"/tasks?"+query, "", "")
	require.Equal(t, http.StatusOK, status, "%s: %s", query, said)
	var list api.TaskList
	require.NoError(t, json.Unmarshal(said, &list))
	return list
}

func (d described) walk(t *testing.T, query string, between func()) (ids []string) {
	t.Helper()
	for cursor, first := "", true; first || cursor != ""; first = false {
		list := d.tasks(t, query+"&cursor="+cursor)
		for _, v := range list.Items {
			ids = append(ids, v.ID)
		}
		cursor = list.Next
		between()
	}
	return ids
}

// Programs find agents by labels, and page through lists that grow meanwhile.
func TestTheAPIOfLabelsAndCursors(t *testing.T) {
	t.Parallel()
	m := Start(t, "attic")
	d, there := m.Hub.describe(t), m.Spokes["attic"].describe(t)
	order := func(labels commands.Labels) string {
		return m.Order(t, hub.SpawnRequest{Spoke: "attic", Labels: labels, Spawn: commands.Spawn{Runtime: commands.RuntimeNoop}})
	}
	var all, web []string
	for i := range 7 {
		if labels := (commands.Labels{"app": "web", "n": strconv.Itoa(i)}); i%2 == 0 {
			web = append(web, order(labels))
			all = append(all, web[len(web)-1])
		} else {
			all = append(all, order(nil))
		}
	}
	for _, id := range all {
		m.Wait(t, id)
	}
	slices.Sort(all)
	slices.Reverse(all)
	slices.Sort(web)
	slices.Reverse(web)

	require.Equal(t, web, d.walk(t, "limit=3&labels=app=web", func() {}))
	require.Len(t, d.walk(t, "labels=app=web,n!=2", func() {}), 3)
	require.Len(t, d.walk(t, "labels=!app", func() {}), 3)
	require.Empty(t, d.walk(t, "labels=app=web&open=true", func() {}))
	require.Empty(t, there.walk(t, "labels=app", func() {}), "a spoke knows no labels")
	require.Equal(t, all, there.walk(t, "limit=3&labels=!app", func() {}))
	require.Equal(t, all, d.walk(t, "limit=3", func() { order(nil) }), "what came meanwhile moves nothing")
	for _, query := range []string{"labels=a==b", "labels=a,,b", "labels=%21", "cursor=x", "cursor=" + all[0]} {
		status, said := d.ask(t, "GET", api.Base+"/tasks?"+query, "", "")
		require.Equal(t, http.StatusBadRequest, status, "%s: %s", query, said)
	}
}
