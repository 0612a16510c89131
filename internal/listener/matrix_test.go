package listener_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/hub/api"
)

// Every operation of the document, asked by every role in every workspace and by nobody, is answered as the
// table of roles says: to who may ask it as if he alone did.
func TestEveryOperationIsForItsRoles(t *testing.T) {
	t.Parallel()
	m := start(t)
	var doc struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	owner := asks(t, m, token(t, m, "owner", api.Owner, api.Everywhere).Token, 2)
	owner.gets(t, api.Base+"/openapi.json", &doc)
	type column struct {
		p      *program
		name   string // as whom it reads messages
		access api.Access
	}
	columns := []column{{asks(t, m, "", 0), "nobody", api.Access{}}}
	for i, workspace := range []string{api.Everywhere, "main", "lab"} {
		for j, role := range api.Roles {
			name := string(role) + "-" + []string{"all", "main", "lab"}[i]
			columns = append(columns, column{asks(t, m, token(t, m, name, role, workspace).Token, byte(10+10*i+j)), "token:" + name, api.Access{Role: role, Workspace: workspace}})
		}
	}
	asked := 0
	for path, methods := range doc.Paths {
		for method := range methods {
			if method == "parameters" || method == "servers" {
				continue
			}
			method = strings.ToUpper(method)
			route := api.Base + path
			if slices.Contains([]string{"/healthz", "/readyz", "/metrics"}, path) {
				route = path
			}
			named := strings.NewReplacer("{reader}", "*", "{workspace}", "main", "{task}", "nothing", "{connection}", "nothing", "{invite}", "nothing", "{token}", "nothing", "{", "", "}", "").Replace(route)
			columns[0].p = asks(t, m, "", byte(100+asked%100)) // who has no token has a rate of his own
			for _, c := range columns {
				at := strings.ReplaceAll(named, "*", c.name)
				status, code, said := c.p.ask(t, method, at, bodyOf(method))
				asked++
				want := c.access.Denies(method+" "+route, at)
				got := map[int]api.Denial{http.StatusUnauthorized: api.Anonymous, http.StatusForbidden: api.NotForRole}[status]
				if want == api.NotForWorkspace {
					want = api.NotForRole // both are FORBIDDEN
				}
				if want == api.OutOfSight {
					require.Equal(t, 404, status, said)
					require.Equal(t, "NOT_FOUND", code)
					continue
				}
				require.Equal(t, want, got, "%s %s as %v: %d %s", method, at, c.access, status, said)
				require.NotEqual(t, http.StatusInternalServerError, status, said)
			}
		}
	}
	require.Greater(t, asked, 400)
}

// bodyOf is one that nothing comes of where a field is required.
func bodyOf(method string) string {
	if method == "GET" {
		return ""
	}
	return "{}"
}

// A viewer sees what became of an agent, and neither what it was given nor what it wrote; the audit names who
// ordered it by the name of the token.
func TestWhatAViewerSees(t *testing.T) {
	t.Parallel()
	m := start(t, "attic")
	operator := asks(t, m, token(t, m, "ci", api.Operator, api.Everywhere).Token, 2)
	viewer := asks(t, m, token(t, m, "board", api.Viewer, api.Everywhere).Token, 3)
	status, _, said := operator.ask(t, "POST", api.Base+"/tasks", `{"spoke":"attic","runtime":"exec","argv":["sh","-c","echo the-secret-of-the-agent; exit 3"]}`)
	require.Equal(t, 200, status, said)
	var made api.TaskCreated
	require.NoError(t, json.Unmarshal([]byte(said), &made))
	m.Wait(t, made.ID)

	_, _, all := operator.ask(t, "GET", api.Base+"/tasks/"+made.ID+"?receipts=true", "")
	_, _, some := viewer.ask(t, "GET", api.Base+"/tasks/"+made.ID+"?receipts=true", "")
	_, _, list := viewer.ask(t, "GET", api.Base+"/tasks", "")

	require.Contains(t, all, "the-secret-of-the-agent")
	require.NotContains(t, some+list, "the-secret-of-the-agent")
	var v api.Task
	require.NoError(t, json.Unmarshal([]byte(some), &v))
	require.Equal(t, "token:ci", v.CreatedBy)
	require.Equal(t, 3, *v.ExitCode)
	require.NotEmpty(t, v.Receipts)
	for _, r := range v.Receipts {
		require.Empty(t, r.Envelope)
	}
	status, code, _ := viewer.ask(t, "GET", api.Base+"/tasks/"+made.ID+"/logs", "")
	require.Equal(t, 403, status)
	require.Equal(t, "FORBIDDEN", code)
	rows := m.Hub.Pairs(t, `SELECT actor, string_agg(DISTINCT action, ' ') FROM audit WHERE actor LIKE 'token:%' GROUP BY 1`)
	require.Equal(t, map[string]string{"token:ci": "task.ordered"}, rows)
}
