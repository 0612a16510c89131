package meshtest

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
)

// keyed sends a request with an idempotency key in its header.
func (d described) keyed(t *testing.T, method, path, key, body string, v any) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://instance"+api.Base+path, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", key)
	resp, err := d.client.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	if v != nil {
		require.NoError(t, json.Unmarshal(text, v), "%s", text)
	}
	return resp.StatusCode, string(text)
}

// A key in the header is the one of the body. Where there can be none it is refused, and not left out.
func TestTheIdempotencyKeyOfTheHeader(t *testing.T) {
	t.Parallel()
	m := Start(t, "attic")
	d := m.Hub.describe(t)
	const order = `{"runtime":"noop","spoke":"attic"`
	var first, again api.TaskCreated
	for _, tt := range []struct {
		body string
		to   *api.TaskCreated
	}{{order + `}`, &first}, {order + `}`, &again}, {order + `,"idempotency_key":"k1"}`, &again}} {
		status, said := d.keyed(t, "POST", "/tasks", "k1", tt.body, tt.to)
		require.Equal(t, http.StatusOK, status, said)
	}
	require.False(t, first.Existing)
	require.Equal(t, api.TaskCreated{ID: first.ID, ShortID: first.ShortID, Spoke: "attic", Existing: true}, again)
	m.Hub.Do(t, "POST", api.Base+"/tasks", map[string]any{"runtime": "noop", "spoke": "attic", "idempotency_key": "k1"}, &again)
	require.Equal(t, first.ID, again.ID, "by the body alone")

	var made, same api.BacklogTaskList
	const tasks = "/workspaces/main/tasks"
	status, said := d.keyed(t, "POST", tasks, "k1", `{"items":[{"title":"x"}]}`, &made)
	require.Equal(t, http.StatusOK, status, said)
	status, said = d.keyed(t, "POST", tasks, "k1", `{"items":[{"title":"x","idempotency_key":"k1"}]}`, &same)
	require.Equal(t, http.StatusOK, status, said)
	require.Equal(t, made.Items[0].ID, same.Items[0].ID)
	require.Equal(t, "k1", made.Items[0].IdempotencyKey)

	for _, tt := range []struct {
		path, body, words string
		status            int
	}{
		{"/tasks", order + `,"idempotency_key":"k2"}`, "differ", http.StatusBadRequest},
		{"/tasks", `{"runtime":"noop","spoke":"attic","title":"other"}`, "other content", http.StatusConflict},
		{tasks, `{"items":[{"title":"x","idempotency_key":"k2"}]}`, "differ", http.StatusBadRequest},
		{tasks, `{"items":[{"title":"x"},{"title":"y"}]}`, "for one task, and these are 2", http.StatusBadRequest},
		{"/invites", `{"name":"loft"}`, "takes no Idempotency-Key", http.StatusBadRequest},
		{"/tokens", `{"name":"ci","role":"viewer","workspace":"*"}`, "takes no Idempotency-Key", http.StatusBadRequest},
		{"/workspaces/main/budgets", `{"name":"b","dimension":"usd","hard":1}`, "takes no Idempotency-Key", http.StatusBadRequest},
		{"/tasks/" + first.ID + "/kill", `{"reason":"x"}`, "takes no Idempotency-Key", http.StatusBadRequest},
	} {
		var p api.Problem
		status, said := d.keyed(t, "POST", tt.path, "k1", tt.body, &p)

		require.Equal(t, tt.status, status, "%s: %s", tt.path, said)
		require.Contains(t, p.Detail, tt.words, tt.path)
		if tt.status == http.StatusBadRequest {
			require.Equal(t, string(commands.Validation), p.Code, tt.path)
		}
	}
	status, said = d.keyed(t, "GET", "/tasks", "k1", "", nil)
	require.Equal(t, http.StatusOK, status, said)
	status, _ = d.ask(t, "POST", api.Base+"/tasks?Idempotency-Key=k1", "application/json", order+`}`)
	require.Equal(t, http.StatusBadRequest, status)
	require.Zero(t, m.Hub.Count(t, `SELECT count(*) FROM invites WHERE name = 'loft'`))
}

// The audit is read to its beginning, page by page.
func TestTheAuditHasPages(t *testing.T) {
	t.Parallel()
	m := Start(t, "attic")
	task := m.Noop(t, "attic")
	m.Wait(t, task)
	d := m.Hub.describe(t)
	walk := func(query string) (all []api.AuditRow) {
		for cursor, first := "", true; first || cursor != ""; first = false {
			status, said := d.ask(t, "GET", api.Base+"/audit?"+query+"&cursor="+cursor, "", "")
			require.Equal(t, http.StatusOK, status, "%s", said)
			var v api.AuditList
			require.NoError(t, json.Unmarshal(said, &v))
			all, cursor = append(v.Items, all...), v.Next
		}
		return all
	}
	all := walk("limit=10000")
	require.Greater(t, len(all), 4)

	paged := walk("limit=2")

	require.Equal(t, all, paged[:len(all)], "there may be more by now")
	of := walk("limit=1&object=" + task)
	require.NotEmpty(t, of)
	require.Equal(t, walk("object="+task), of)
	require.Len(t, walk("limit=1&since=2999-01-01T00:00:00Z"), 0)
	status, _ := d.ask(t, "GET", api.Base+"/audit?cursor=x", "", "")
	require.Equal(t, http.StatusBadRequest, status)
}
