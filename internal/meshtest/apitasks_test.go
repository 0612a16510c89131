package meshtest

import (
	"io"
	"net/http"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/hub/api"
)

// What other programs than the command line are told of an agent.
func TestTheAPIOfTasks(t *testing.T) {
	t.Parallel()
	m := Start(t, "attic")
	d := m.Hub.describe(t)
	logs := func(id, after string) string {
		req, err := http.NewRequestWithContext(t.Context(), "GET", "http://instance"+api.Base+"/tasks/"+id+"/logs?follow=true", nil)
		require.NoError(t, err)
		req.Header.Set("Last-Event-ID", after)
		resp, err := d.client.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return string(text)
	}
	id := m.Spawn(t, "attic", "sh", "-c", "echo one; echo two >&2")
	m.Wait(t, id)

	all := logs(id, "0")
	pieces := regexp.MustCompile(`(?m)^id: (\d+)\ndata: (\{.*\})\n\n`).FindAllStringSubmatch(all, -1)
	require.GreaterOrEqual(t, len(pieces), 2, all)
	require.Regexp(t, `(?s)event: end\ndata: \{\}\n\n$`, all)
	first := "id: " + pieces[0][1] + "\n"
	require.Contains(t, all, first)
	rest := logs(id, pieces[0][1])
	require.NotContains(t, rest, first, "it goes on")
	require.Contains(t, rest, "id: "+pieces[1][1]+"\n")

	var late api.Task
	m.Hub.Do(t, "POST", api.Base+"/tasks/"+id+"/kill", api.KillRequest{Reason: "too late"}, &late)
	require.Equal(t, new(false), late.KillOrdered)
	require.Equal(t, api.TaskState(commands.Completed), late.State)
	for _, wait := range []string{"-1s", "soon", "9"} {
		require.ErrorContains(t, m.Hub.Ask(t, "GET", api.Base+"/tasks/"+id+"?wait="+wait, nil, nil), "wait is a time such as 30s")
	}
	require.Equal(t, api.WhyCode(commands.CauseEnded), m.why(t, id, "").Reasons[0].Code)
	require.ErrorContains(t, m.Spokes["attic"].Ask(t, "GET", api.Base+"/tasks/"+id+"/logs", nil, nil), "is a spoke; this is asked of its hub")
}

// An agent that is asked about is found by any of its names, also where the wait is over at once.
func TestAShortWait(t *testing.T) {
	t.Parallel()
	m := Start(t, "attic")
	id := m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: commands.Spawn{Title: "one", Runtime: commands.RuntimeNoop}})
	m.Wait(t, id)
	for _, name := range []string{id, commands.ShortID(id), "one"} {
		var v hub.AgentView
		require.NoError(t, m.Hub.Ask(t, "GET", api.Base+"/tasks/"+name+"?wait=1ns", nil, &v), name)
		require.Equal(t, id, v.Task)
	}
}
