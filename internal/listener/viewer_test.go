package listener_test

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/listener"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
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
		require.NotContains(t, said, marker, path)
	}
	err := m.Spokes["attic"].Ask(t, "GET", api.Base+"/tasks/"+part, nil, nil)
	require.ErrorContains(t, err, "names several agents: 00000002 (completed here, by order of lab), 00000001 (completed here, by order of lab)")
}

// Who asks an instance is not told where it keeps its files.
func TestARefusalNamesNoDirectory(t *testing.T) {
	t.Parallel()
	m := start(t, "attic")
	viewer := asks(t, m, token(t, m, "board", api.Viewer, api.Everywhere).Token, 2)

	status, _, said := viewer.ask(t, "GET", api.Base+"/tasks/"+m.Noop(t, "attic")+"/why", "")

	require.Equal(t, 200, status)
	require.NotContains(t, said, m.Hub.Dir)
}

const marker = "the-secret-of-the-agent"

// picky is the policy of a host that refuses what names the marker as a directory or a program.
var picky = meshtest.Loose("version: 1\nruntimes: [exec, noop]\ncommands: [\"true\", sh **]\n")

// refusedWithMarkers orders what a picky host refuses, and requires that an operator reads the marker in its words.
func refusedWithMarkers(t *testing.T, m *meshtest.Mesh, operator *program) (ids []string) {
	t.Helper()
	for _, order := range []string{`"argv":["true"],"dir":"/` + marker + `"`, `"argv":["/` + marker + `","` + marker + `"]`} {
		id := operator.spawned(t, `{"spoke":"attic","runtime":"exec",`+order+`}`)
		m.Wait(t, id)
		var refused api.Task
		operator.gets(t, api.Base+"/tasks/"+id, &refused)
		require.Len(t, refused.Refusals, 1, order)
		require.Contains(t, refused.Refusals[0].Why, marker, order)
		var rows api.AuditList
		operator.gets(t, api.Base+"/audit?object="+id, &rows)
		require.Equal(t, refused.Refusals[0].Why, rows.Items[len(rows.Items)-1].Why, "the end that the audit knows")
		ids = append(ids, id)
	}
	m.Hub.Exec(t, `UPDATE mirrors SET refusals = jsonb_set(refusals, '{0,hint}', to_jsonb($1::text)) WHERE task = $2`, marker, ids[0])
	return ids
}

// fillWithMarkers makes agents and tasks whose every content has the marker, and returns names for what is asked.
func fillWithMarkers(t *testing.T, m *meshtest.Mesh, operator *program, worker *program) (names []string) {
	t.Helper()
	did := func(p *program, path, body string) string {
		status, _, said := p.ask(t, "POST", api.Base+path, body)
		require.Equal(t, 200, status, "%s: %s", path, said)
		return said
	}
	const part = "01a2199f-0000-7000-8000-00000000000"
	order := func(last, rest string) string {
		return operator.spawned(t, `{"spoke":"attic","id":"`+part+last+`","runtime":"exec","argv":["sh","-c","echo `+marker+`; sleep `+rest+`"]}`)
	}
	ended, killed := order("1", "0"), order("2", "1000")
	m.Wait(t, ended)
	m.Await(t, killed, commands.Running)
	did(operator, "/tasks/"+killed+"/kill", `{"reason":"`+marker+`"}`)
	m.Wait(t, killed)
	names = append(refusedWithMarkers(t, m, operator), ended, killed, part, "A", "B", "attic", "nothing")

	const cards = "/workspaces/main/tasks"
	did(operator, cards, `{"items":[{"key":"A","title":"a","body":"`+marker+`","acceptance":["`+marker+`"]},{"key":"B","title":"b","body":"`+marker+`"}]}`)
	var claims api.BacklogClaims
	require.NoError(t, json.Unmarshal([]byte(did(worker, "/workspaces/main/claim", `{"owner":"w1","ttl_ms":600000,"task":"A"}`)), &claims))
	did(worker, cards+"/A/complete", `{"reason":"`+marker+`","fence":"`+claims.Items[0].Fence+`","result":{"x":"`+marker+`"}}`)
	did(operator, cards+"/B/block", `{"reason":"`+marker+`"}`)
	return names
}

// all is what is answered to a path.
func (p *program) all(t *testing.T, path string) string {
	t.Helper()
	_, _, said := p.ask(t, "GET", api.Base+path, "")
	return said
}

// known is what is answered to a path, which the document has to know.
func (p *program) known(t *testing.T, doc meshtest.Document, path string) string {
	t.Helper()
	ctx, done := context.WithTimeout(t.Context(), meshtest.Patience)
	defer done()
	resp := p.send(ctx, t, "GET", api.Base+path, "")
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.True(t, doc.Knows(t, resp.Request, resp.StatusCode, resp.Header, text), path)
	return string(text)
}

// Whatever a viewer may read has nothing of what agents and tasks were given, wrote and were told, names no directory
// of the host, and is what the document says. An operator, who reads the same, sees it.
func TestNothingThatAViewerReadsHasContent(t *testing.T) {
	t.Parallel()
	m := meshtest.Plan{API: &listener.Config{Address: "127.0.0.1:0"}, Policy: picky}.Start(t, "attic")
	operator := asks(t, m, token(t, m, "ci", api.Operator, api.Everywhere).Token, 2)
	viewer := asks(t, m, token(t, m, "board", api.Viewer, api.Everywhere).Token, 3)
	names := fillWithMarkers(t, m, operator, asks(t, m, token(t, m, "w1", api.Worker, api.Everywhere).Token, 4))
	doc := meshtest.ReadDocument(t, []byte(viewer.all(t, "/openapi.json")))
	saw := map[string]bool{}
	for path, item := range doc.Paths.Map() {
		pattern := "GET " + api.Base + path
		access := api.Access{Role: api.Viewer, Workspace: api.Everywhere}
		if item.Get == nil || item.Servers != nil || access.Denies(pattern, "") != api.Granted {
			continue
		}
		query := map[string]string{"/tasks/{task}": "?receipts=true", "/events": "?since=0"}[path]
		for _, name := range names {
			at := strings.NewReplacer("{workspace}", "main", "{task}", name, "{connection}", name, "{budget}", name, "{quota}", name).Replace(path) + query
			said := viewer.known(t, doc, at)
			require.NotContains(t, said, marker, at)
			require.NotContains(t, said, m.Hub.Dir, at)
			saw[path] = saw[path] || strings.Contains(operator.known(t, doc, at), marker)
			if at == path+query {
				break // it names nothing
			}
		}
	}
	for _, path := range []string{"/tasks", "/tasks/{task}", "/audit", "/workspaces/{workspace}/tasks", "/workspaces/{workspace}/tasks/{task}", "/workspaces/{workspace}/audit"} {
		require.True(t, saw[path], "an operator sees nothing in %s", path)
	}
}
