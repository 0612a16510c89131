package meshtest

import (
	"encoding/json"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/spoke"
	"github.com/spawnmesh/spawnmesh/store"
)

// viewOfStopped returns an agent as a command shows it where no spoke runs.
func viewOfStopped(t *testing.T, s *Spoke, id string) (v spoke.AgentView) {
	t.Helper()
	in := s.Visit(t)
	answer := httptest.NewRecorder()
	spoke.Reader(in.DB, s.Dir).ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), "GET", "/v1/agents/"+id, nil))
	require.NoError(t, in.Close(t.Context()))
	require.NoError(t, json.Unmarshal(answer.Body.Bytes(), &v))
	return v
}

// The agents of the original go on while a copy of its directory runs on the same host, and
// their results are told once the copy was stopped.
func TestACopyLeavesTheAgentsOfTheOriginal(t *testing.T) {
	t.Parallel()
	m := Plan{Lease: 2 * time.Minute}.Start(t, "attic")
	original, gate := m.Spokes["attic"], filepath.Join(t.TempDir(), "gate")
	id := m.Spawn(t, "attic", "sh", "-c", "until [ -e "+gate+" ]; do sleep 0.05; done; echo done")
	m.Await(t, id, commands.Running)
	m.Stop(t, "attic")
	clone := m.clone(t, "attic")

	clone.start(t)
	m.Start(t, "attic")

	Await(t, "the suspension at both", func() bool { return toldOfClone(t, original) && toldOfClone(t, clone) })
	Await(t, "that the copy names the original", func() bool {
		return strings.Contains(clone.Log.String(), "this directory is a copy, and the agent belongs to the original: "+original.Dir)
	})
	var shown spoke.AgentView
	clone.Do(t, "GET", "/v1/agents/"+id, nil, &shown)
	require.Equal(t, filepath.Join(original.Dir, "agents", id), shown.Original)
	var instance struct{ Health []control.Check }
	clone.Do(t, "GET", "/v1/instance", nil, &instance)
	at := slices.IndexFunc(instance.Health, func(c control.Check) bool { return c.Name == "data directory" })
	require.GreaterOrEqual(t, at, 0)
	require.Equal(t, "it is a copy: 1 of its agents run in the original, "+original.Dir+"; stop this instance; its agents do not move with a copy", instance.Health[at].Problem)
	var there spoke.AgentView
	original.Do(t, "GET", "/v1/agents/"+id, nil, &there)
	require.Empty(t, there.Original)
	clone.stop(t)
	require.Equal(t, filepath.Join(original.Dir, "agents", id), viewOfStopped(t, clone, id).Original, "also where no spoke runs")
	m.Turn(t, "attic", "resume")
	Await(t, "that the hub is heard", func() bool { return m.View(t, "attic").State == store.Active })
	original.Turn(t, "resume")
	require.NoError(t, os.WriteFile(gate, nil, 0o600))
	v := m.Wait(t, id)
	require.Equal(t, commands.Completed, v.State, v.Reason)
	require.Equal(t, 1, v.Attempt)
}

// An agent that ends while only a copy runs, has ended in the copy, too: with its output, and
// it runs no second time. It is ended in the original alone.
func TestACopyTellsTheEndOfTheAgentsOfTheOriginal(t *testing.T) {
	t.Parallel()
	m := Plan{Lease: 2 * time.Minute}.Start(t, "attic")
	original, notes := m.Spokes["attic"], t.TempDir()
	id := m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeExec, OnLoss: commands.LossReruns,
		Argv: []string{"sh", "-c", `echo run >>"$0/runs"; echo first; until [ -e "$0/gate" ]; do sleep 0.05; done; echo last`, notes}}})
	m.Await(t, id, commands.Running)
	m.Stop(t, "attic")
	clone := m.clone(t, "attic")
	noted := filepath.Join(clone.Dir, "agents", id, "1", "original")
	isNoted := func() bool { _, err := os.Stat(noted); return err == nil }

	clone.start(t)
	Await(t, "that the copy knows the original", func() bool {
		return strings.Contains(clone.Log.String(), "an agent does not run here; stop this instance: its agents do not move with a copy")
	})
	kill := clone.Ask(t, "POST", "/v1/agents/"+id+"/kill", map[string]any{"reason": "enough", "grace_ms": 0}, nil)
	require.NoError(t, os.Remove(noted))
	Await(t, "its next look", isNoted)
	require.NoError(t, os.WriteFile(filepath.Join(notes, "gate"), nil, 0o600))

	v := m.Wait(t, id)
	require.Equal(t, commands.Completed, v.State, v.Reason)
	require.Equal(t, 1, v.Attempt)
	require.Equal(t, "first\nlast\n", m.Stdout(t, id, true))
	runs, err := os.ReadFile(filepath.Join(notes, "runs"))
	require.NoError(t, err)
	require.Equal(t, "run\n", string(runs))
	require.Equal(t, commands.Conflict, commands.CodeOf(kill))
	require.ErrorContains(t, kill, "the agent does not run here: this data directory is a copy, and the agent belongs to the original, "+original.Dir)
	require.Zero(t, clone.Count(t, `SELECT count(*) FROM kills`))
	require.Equal(t, 1, strings.Count(clone.Log.String(), "an agent does not run here"), "said once, however often it is looked for")
	require.NotContains(t, clone.Log.String(), "taking over an attempt; it will be tried again")
}
