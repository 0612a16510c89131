package listener_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/hub/api"
)

// A worker claims in its workspace, and speaks of what it has claimed and of nothing else; a viewer sees neither
// what it was given nor what came of it.
func TestAWorkerSpeaksOfWhatItHasClaimed(t *testing.T) {
	t.Parallel()
	m := start(t)
	const at = api.Base + "/workspaces/lab"
	operator, worker, viewer := asks(t, m, token(t, m, "ops", api.Operator, "lab").Token, 2), asks(t, m, token(t, m, "w1", api.Worker, "lab").Token, 3), asks(t, m, token(t, m, "board", api.Viewer, "lab").Token, 4)
	status, _, said := operator.ask(t, "POST", at+"/tasks", `{"items":[{"key":"A","title":"a","body":"the-body"},{"key":"B","title":"b","body":"the-body"}]}`)
	require.Equal(t, 200, status, said)
	status, _, said = worker.ask(t, "POST", at+"/claim", `{"owner":"w1","ttl_ms":600000,"task":"A"}`)
	require.Equal(t, 200, status, said)
	require.Contains(t, said, "the-body")
	var got api.BacklogClaims
	require.NoError(t, json.Unmarshal([]byte(said), &got))

	for _, path := range []string{"/tasks/A/complete", "/tasks/B/fail", "/tasks/B/release", "/tasks/B/block"} {
		status, code, said := worker.ask(t, "POST", at+path, `{"reason":"mine"}`)
		require.Equal(t, "VALIDATION", code, "%s: %d %s", path, status, said)
		require.Contains(t, said, "that it has claimed")
	}
	status, _, said = worker.ask(t, "POST", at+"/tasks/B/complete", `{"fence":"`+got.Items[0].Fence+`"}`)
	require.NotEqual(t, 200, status, said)
	status, _, said = worker.ask(t, "POST", at+"/tasks/A/complete", `{"reason":"the-reason","fence":"`+got.Items[0].Fence+`","result":{"x":"the-result"}}`)
	require.Equal(t, 200, status, said)

	_, _, list := viewer.ask(t, "GET", at+"/tasks", "")
	_, _, one := viewer.ask(t, "GET", at+"/tasks/A", "")
	_, _, why := viewer.ask(t, "GET", at+"/tasks/B/why", "")
	require.Contains(t, list+one+why, `"key":"B"`)
	require.NotContains(t, list+one+why, "the-body")
	require.NotContains(t, list+one+why, "the-result")
	_, _, all := operator.ask(t, "GET", at+"/tasks/A", "")
	require.Contains(t, all, "the-body")
	require.Contains(t, all, "the-result")
	for _, p := range []*program{operator, worker, viewer} {
		status, code, said := p.ask(t, "GET", api.Base+"/workspaces/main/tasks", "")
		if p == worker {
			require.Equal(t, 403, status, said)
			continue
		}
		require.Equal(t, 404, status, said)
		require.Equal(t, "NOT_FOUND", code)
	}
	_, _, told := viewer.ask(t, "GET", at+"/audit", "")
	require.Contains(t, told, "worker.completed")
	require.NotContains(t, told, "the-reason")
	_, _, told = operator.ask(t, "GET", at+"/audit", "")
	require.Contains(t, told, "the-reason")
	rows := m.Hub.Pairs(t, `SELECT actor, string_agg(DISTINCT action, ' ') FROM audit WHERE workspace = 'lab' GROUP BY 1`)
	require.Contains(t, rows["token:ops"], "task.queued")
}

// Who owns one workspace changes its limits, and none that binds the others.
func TestAWorkspaceDoesNotLimitTheInstance(t *testing.T) {
	t.Parallel()
	m := start(t)
	const at = api.Base + "/workspaces/lab"
	lab, all := asks(t, m, token(t, m, "lab", api.Owner, "lab").Token, 2), asks(t, m, token(t, m, "all", api.Owner, api.Everywhere).Token, 3)
	for path, body := range map[string]string{"/budgets": `{"name":"wide","dimension":"usd","hard":5,"scope":"instance"}`, "/quotas": `{"name":"wide","scope":"instance","concurrent":1}`, "/freezes": `{"scope":"instance","reason":"test"}`} {
		status, code, said := lab.ask(t, "POST", at+path, body)
		require.Equal(t, 403, status, "%s: %s", path, said)
		require.Equal(t, "FORBIDDEN", code)
		status, _, said = all.ask(t, "POST", at+path, body)
		require.Equal(t, 200, status, "%s: %s", path, said)
	}
	for path, body := range map[string]string{"/budgets/wide/grant": `{"amount":5,"reason":"test"}`, "/budgets/wide/reset": `{"reason":"test"}`, "/budgets/wide/remove": `{"reason":"test"}`,
		"/quotas/wide/remove": `{"reason":"test"}`, "/freezes/lift": `{"scope":"instance","reason":"test"}`} {
		status, _, said := lab.ask(t, "POST", at+path, body)
		require.Equal(t, 403, status, "%s: %s", path, said)
	}
	status, _, said := lab.ask(t, "POST", at+"/budgets", `{"name":"own","dimension":"usd","hard":5,"scope":"workspace"}`)
	require.Equal(t, 200, status, said)
}
