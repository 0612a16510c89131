package meshtest

import (
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/hub/api"
)

// walked reports whether an operation is one of the backlog, its limits, or what is kept.
func walked(op *openapi3.Operation) bool {
	return slices.ContainsFunc(op.Tags, func(tag string) bool { return slices.Contains([]string{"backlog", "limits", "retention"}, tag) })
}

// A walk does operations of the backlog, and remembers which.
type walk struct {
	described
	done map[string]bool
}

// do sends a request that must be done.
func (w walk) do(t *testing.T, method, path, body string, out any) {
	t.Helper()
	status, said := w.ask(t, method, api.Base+path, "application/json", body)
	require.Equal(t, http.StatusOK, status, "%s %s %s: %s", method, path, body, said)
	if out != nil {
		reflect.ValueOf(out).Elem().SetZero() // nothing of an earlier answer stays
		require.NoError(t, json.Unmarshal(said, out))
	}
	req, err := http.NewRequestWithContext(t.Context(), method, "http://instance"+api.Base+path, nil)
	require.NoError(t, err)
	route, _, err := w.doc.router.FindRoute(req)
	require.NoError(t, err)
	w.done[route.Operation.OperationID] = true
}

// refused sends a request that must not be done.
func (w walk) refused(t *testing.T, status int, words, path, body string) {
	t.Helper()
	got, said := w.ask(t, "POST", api.Base+path, "application/json", body)
	require.Equal(t, status, got, "%s", said)
	var p api.Problem
	require.NoError(t, json.Unmarshal(said, &p))
	require.Contains(t, p.Detail, words)
}

// Every operation of the backlog, its limits and what is kept does what it says, on a hub, on a spoke and on an
// instance that does not run.
func TestTheAPIOfTheBacklog(t *testing.T) {
	t.Parallel()
	m := Start(t, "attic")
	for name, describe := range map[string]func(*testing.T) described{"hub": m.Hub.describe, "spoke": m.Spokes["attic"].describe, "at rest": newInstance(t, "rest").describeAtRest} {
		t.Run(name, func(t *testing.T) {
			w := walk{describe(t), map[string]bool{}}
			w.tasks(t)
			w.claims(t)
			w.limits(t)
			for path, item := range w.doc.Paths.Map() {
				for method, op := range item.Operations() {
					require.True(t, !walked(op) || w.done[op.OperationID], "%s %s was not done", method, path)
				}
			}
		})
	}
}

const board = "/workspaces/walked"

func keysOf(list api.BacklogTaskList) (keys []string) {
	for _, t := range list.Items {
		keys = append(keys, t.Key)
	}
	return keys
}

func (w walk) tasks(t *testing.T) {
	var made, page api.BacklogTaskList
	w.do(t, "POST", board+"/tasks", `{"items": [{"key": "A1", "title": "one", "estimate": {"usd": 0.5}, "acceptance": ["a < b"]}, {"key": "A2", "title": "two", "depends_on": ["A1"]}, {"key": "A3", "title": "later", "delay_ms": 3600000}]}`, &made)
	require.Equal(t, []string{"A1", "A2", "A3"}, keysOf(made))
	require.Equal(t, new(false), made.Items[0].Existing)
	require.Equal(t, `["a < b"]`, string(made.Items[0].Acceptance))
	require.WithinDuration(t, made.Items[2].CreatedAt.Add(3600e9), *made.Items[2].NotBefore, 60e9)
	w.do(t, "POST", board+"/tasks", `{"items": [{"key": "A2", "title": "two", "depends_on": ["A1"]}]}`, &made)
	require.Equal(t, new(true), made.Items[0].Existing)
	w.refused(t, http.StatusBadRequest, "not_before and delay_ms are both given", board+"/tasks", `{"items": [{"title": "x", "not_before": "2090-01-01T00:00:00Z", "delay_ms": 1}]}`)
	w.refused(t, http.StatusBadRequest, "is not a number from 0", board+"/tasks", `{"items": [{"title": "x", "estimate": {"usd": -1}}]}`)
	w.refused(t, http.StatusBadRequest, "cannot stand in a path", board+"/tasks", `{"items": [{"title": "x", "key": ".."}]}`)

	w.do(t, "POST", "/workspaces/other/tasks", `{"items": [{"title": "x", "acceptance": null}]}`, &made)
	require.Nil(t, made.Items[0].Acceptance)
	var all api.WorkspaceList
	w.do(t, "GET", "/workspaces", "", &all)
	for _, name := range []string{"other", "walked"} {
		require.True(t, slices.ContainsFunc(all.Items, func(v api.Workspace) bool { return v.Name == name }), name)
	}

	w.do(t, "GET", board+"/tasks?limit=2", "", &page)
	require.Equal(t, []string{"A3", "A2"}, keysOf(page))
	w.do(t, "POST", board+"/tasks", `{"items": [{"key": "a/b", "title": "meanwhile"}]}`, nil)
	w.do(t, "GET", board+"/tasks?limit=2&cursor="+page.Next, "", &page)
	require.Equal(t, []string{"A1"}, keysOf(page), "what was created meanwhile moves nothing")
	require.Empty(t, page.Next)
	w.do(t, "GET", board+"/tasks?ready_only=true&limit=1", "", &page)
	require.Equal(t, []string{"A1"}, keysOf(page))
	require.Empty(t, page.Next, "claim order has no pages")
	w.do(t, "GET", board+"/tasks/a%2Fb", "", nil)

	w.do(t, "POST", board+"/tasks/a%2Fb/link", `{"to": "A3"}`, nil)
	w.do(t, "POST", board+"/tasks/a%2Fb/unlink", `{"to": "A3"}`, nil)
	w.do(t, "POST", board+"/tasks/a%2Fb/block", `{}`, nil)
	w.do(t, "POST", board+"/tasks/a%2Fb/unblock", `{}`, nil)
	w.refused(t, http.StatusBadRequest, "to pause a task needs a reason", board+"/tasks/a%2Fb/pause", `{}`)
	w.do(t, "POST", board+"/tasks/a%2Fb/pause", `{"reason": "later"}`, nil)
	w.do(t, "POST", board+"/tasks/a%2Fb/resume", `{}`, nil)
	w.refused(t, http.StatusBadRequest, "to cancel a task needs a reason", board+"/tasks/a%2Fb/cancel", `{}`)
	w.refused(t, http.StatusBadRequest, "to fail a task needs a reason", board+"/tasks/a%2Fb/fail", `{}`)
	w.do(t, "POST", board+"/tasks/a%2Fb/fail", `{"reason": "no"}`, nil)
	w.do(t, "POST", board+"/tasks/a%2Fb/retry", `{"delay_ms": 3600000}`, nil)
	w.do(t, "POST", board+"/tasks/a%2Fb/cancel", `{"reason": "no"}`, nil)
	w.do(t, "POST", board+"/tasks/a%2Fb/archive", "", nil)
	w.do(t, "GET", board+"/tasks?archived=true", "", &page)
	require.Equal(t, []string{"a/b"}, keysOf(page))
	require.NotNil(t, page.Items[0].ArchivedAt)
	w.do(t, "POST", board+"/tasks/a%2Fb/unarchive", "", nil)
	var sum api.ArchiveSummary
	w.do(t, "POST", board+"/tasks/archive", `{"older_than_ms": 1}`, &sum)
	require.Equal(t, 1, sum.Archived)
	w.do(t, "GET", board+"/audit?task=a%2Fb&limit=5", "", nil)
}

func (w walk) claims(t *testing.T) {
	var got api.BacklogClaims
	var page api.BacklogTaskList
	var task api.BacklogTask
	w.do(t, "POST", board+"/claim", `{"owner": "w", "ttl_ms": 60000}`, &got)
	require.Len(t, got.Items, 1)
	c := got.Items[0]
	require.Equal(t, "A1", c.Key)
	w.do(t, "POST", board+"/claim?wait=1ms", `{"owner": "w"}`, &got)
	require.Empty(t, got.Items)
	w.refused(t, http.StatusBadRequest, "a claim of one task does not wait", board+"/claim?wait=1s", `{"owner": "w", "task": "A2"}`)
	w.do(t, "POST", board+"/grants/verify", `{"grant": "`+c.Grant+`"}`, nil)
	w.do(t, "POST", board+"/grants/rotate", "", nil)
	w.do(t, "POST", board+"/tasks/A1/renew", `{"fence": "`+c.Fence+`", "ttl_ms": 120000}`, nil)
	w.refused(t, http.StatusBadRequest, "the fence is of task ", board+"/tasks/A2/renew", `{"fence": "`+c.Fence+`"}`)
	w.refused(t, http.StatusBadRequest, "the fence is of task A1, not of A2", board+"/tasks/A2/complete", `{"fence": "`+c.Fence+`"}`)
	w.do(t, "POST", board+"/tasks/A1/reclaim", "", &page)
	require.Equal(t, []string{"A1"}, keysOf(page))
	w.refused(t, http.StatusConflict, "no longer holds task A1", board+"/tasks/A1/release", `{"fence": "`+c.Fence+`"}`)
	w.do(t, "POST", board+"/reclaim", "", nil)
	w.do(t, "POST", board+"/claim", `{"owner": "w", "task": "A1"}`, &got)
	w.do(t, "POST", board+"/tasks/A1/release", `{"fence": "`+got.Items[0].Fence+`"}`, nil)
	w.do(t, "POST", board+"/claim", `{"owner": "w", "limit": 5}`, &got)
	w.do(t, "POST", board+"/tasks/A1/complete", `{"fence": "`+got.Items[0].Fence+`", "result": {"text": "<b>"}, "usage": {"usd": 0.25}}`, &task)
	require.Equal(t, api.TaskState("completed"), task.State)
	require.JSONEq(t, `{"text": "<b>"}`, string(task.Result))
	require.Contains(t, string(task.Result), "<b>")
	w.do(t, "GET", board+"/tasks/A2/why", "", nil)
	w.do(t, "GET", board+"/stats", "", nil)
}

func (w walk) limits(t *testing.T) {
	var g api.Budget
	w.do(t, "POST", board+"/budgets", `{"name": "daily", "scope": "workspace", "dimension": "usd", "hard": 1.5, "soft": 1, "resets_in_ms": 3600000, "every_seconds": 86400}`, &g)
	require.Equal(t, "1.5", g.Left.String())
	require.EqualValues(t, 86400, g.EverySeconds)
	w.refused(t, http.StatusBadRequest, "field hard takes a number and got true or false", board+"/budgets", `{"name": "x", "scope": "workspace", "dimension": "usd", "hard": true}`)
	w.refused(t, http.StatusBadRequest, "field hard takes a number", board+"/budgets", `{"name": "x", "scope": "workspace", "dimension": "usd", "hard": "many"}`)
	w.do(t, "POST", board+"/budgets/daily/grant", `{"amount": 0.000001, "reason": "more"}`, &g)
	require.Equal(t, "1.500001", g.Hard.String())
	for path, body := range map[string]string{"/budgets/daily/grant": `{"amount": 1, "reason": ""}`, "/budgets/daily/reset": `{}`, "/budgets/daily/remove": `{}`, "/quotas/four/remove": `{}`, "/freezes/lift": `{"scope": "workspace", "reason": ""}`} {
		w.refused(t, http.StatusBadRequest, "needs a reason", board+path, body)
	}
	w.do(t, "POST", board+"/budgets/daily/reset", `{"reason": "again"}`, nil)
	w.do(t, "GET", board+"/budgets", "", nil)
	w.do(t, "GET", board+"/budgets/daily", "", nil)
	w.do(t, "POST", board+"/budgets/daily/remove", `{"reason": "no more"}`, nil)
	w.do(t, "POST", board+"/quotas", `{"name": "four", "scope": "workspace", "concurrent": 4}`, nil)
	w.do(t, "GET", board+"/quotas", "", nil)
	w.do(t, "GET", board+"/quotas/four", "", nil)
	w.do(t, "POST", board+"/quotas/four/remove", `{"reason": "no more"}`, nil)

	var l api.Lane
	for body, words := range map[string]string{`{}`: "names its state, its weight, or both", `{"weight": 0}`: "weight 0 is outside 1..1000", `{"state": "paused"}`: "to pause a lane needs a reason"} {
		status, said := w.ask(t, "PATCH", api.Base+board+"/lanes/slow", "application/json", body)
		require.Equal(t, http.StatusBadRequest, status)
		require.Contains(t, string(said), words)
	}
	w.do(t, "PATCH", board+"/lanes/slow", `{"state": "paused", "weight": 7, "reason": "the build is broken"}`, &l)
	require.Equal(t, []any{"paused", 7}, []any{l.State, l.Weight})
	w.do(t, "GET", board+"/lanes", "", nil)
	w.do(t, "POST", board+"/freezes", `{"scope": "workspace", "reason": "bad deploy"}`, nil)
	w.do(t, "GET", board+"/freezes", "", nil)
	w.do(t, "POST", board+"/freezes/lift", `{"scope": "workspace", "reason": "rolled back"}`, nil)

	var kept api.Retention
	w.do(t, "GET", "/retention", "", nil)
	w.do(t, "PATCH", "/retention/tasks", `{"keep_ns": 604800000000000}`, &kept)
	require.EqualValues(t, 604800e9, kept.KeepNS)
	status, said := w.ask(t, "PATCH", api.Base+"/retention/tasks", "application/json", `{"keep_ns": -1}`)
	require.Equal(t, http.StatusBadRequest, status, "%s", said)
	require.Contains(t, strings.ToLower(string(said)), "at least")
}
