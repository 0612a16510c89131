package meshtest

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
)

// bare sends a request that says nothing of itself but what it has to, as curl does.
func (d described) bare(ctx context.Context, t *testing.T, method, path string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, "http://instance"+api.Base+path, nil)
	require.NoError(t, err)
	resp, err := d.client.Do(req)
	require.NoError(t, err, "%s %s", method, path)
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// What takes no body needs no type of one; and what is read is read without its body, too, at once.
func TestRequestsOfFewWords(t *testing.T) {
	t.Parallel()
	m := Start(t, "attic")
	hub, spoke := m.Hub.describe(t), m.Spokes["attic"].describe(t)
	task := m.Noop(t, "attic")
	m.Wait(t, task)
	running := m.Spawn(t, "attic", "sleep", "60")
	m.Await(t, running, commands.Running)
	ctx, done := context.WithTimeout(t.Context(), 30*time.Second)
	defer done()

	require.Equal(t, http.StatusOK, spoke.bare(ctx, t, "POST", "/policy/reload").StatusCode)
	resync := hub.bare(ctx, t, "POST", "/connections/attic/resync")
	said, err := io.ReadAll(resync.Body)
	require.NoError(t, err)
	require.NotEqual(t, http.StatusUnsupportedMediaType, resync.StatusCode, "%s", said)

	for _, path := range []string{"/keys", "/tasks/" + task, "/tasks/" + task + "/logs", "/tasks/" + running + "/logs?follow=true", "/openapi.json"} {
		resp := hub.bare(ctx, t, "HEAD", path)
		require.Equal(t, http.StatusOK, resp.StatusCode, path)
		require.NotEmpty(t, resp.Header.Get("Content-Type"), path)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Empty(t, body, path)
	}
	require.Equal(t, http.StatusNotFound, hub.bare(ctx, t, "HEAD", "/tasks/01a2b3c4-0000-7000-8000-000000000001").StatusCode)
	require.Equal(t, http.StatusOK, hub.bare(ctx, t, "GET", "/keys").StatusCode, "a connection that was asked for headers goes on")
	m.Hub.Do(t, "POST", "/api/v1/tasks/"+running+"/kill", map[string]string{"reason": "enough"}, nil)
	m.Wait(t, running)
}

// A time that no duration holds is refused as what it is, and not taken for another one.
func TestATimeThatIsTooLongIsNotAnotherOne(t *testing.T) {
	t.Parallel()
	d := Start(t).Hub.describe(t)
	for _, ms := range []string{"18446744073710", "9223372036854775807", "-9223372036854775808", "-18446744073600000"} {
		status, said := d.ask(t, "POST", api.Base+"/invites", "application/json", `{"name":"loft","ttl_ms":`+ms+`}`)

		require.Equal(t, http.StatusBadRequest, status, "%s: %s", ms, said)
		var p api.Problem
		require.NoError(t, json.Unmarshal(said, &p))
		require.True(t, strings.HasPrefix(p.Detail, "an invitation lives from 1s to 1d, not "), p.Detail)
		status, said = d.ask(t, "POST", api.Base+"/keys/rotate", "application/json", `{"overlap_ms":`+ms+`}`)
		require.Equal(t, http.StatusBadRequest, status, "%s: %s", ms, said)
	}
}

// The audit of a time is asked for by that time.
func TestTheAuditSinceATime(t *testing.T) {
	t.Parallel()
	m := Start(t, "attic")
	m.Wait(t, m.Noop(t, "attic"))
	d := m.Hub.describe(t)
	rows := func(query string) (list []api.AuditRow) {
		status, said := d.ask(t, "GET", api.Base+"/audit"+query, "", "")
		require.Equal(t, http.StatusOK, status, "%s", said)
		var v api.AuditList
		require.NoError(t, json.Unmarshal(said, &v))
		return v.Items
	}
	all := rows("")
	require.Greater(t, len(all), 2)
	at := all[len(all)/2].At
	want := slices.DeleteFunc(slices.Clone(all), func(r api.AuditRow) bool { return r.At.Before(at) })

	got := rows("?since=" + at.UTC().Format(time.RFC3339Nano))

	require.Less(t, len(want), len(all))
	require.Equal(t, want, got[:min(len(want), len(got))], "there may be more by now")
	require.Empty(t, rows("?since=9999-01-01T00:00:00Z"))
	status, said := d.ask(t, "GET", api.Base+"/audit?since=yesterday", "", "")
	require.Equal(t, http.StatusBadRequest, status)
	require.Contains(t, string(said), "parameter since has a value that it does not take")
}
