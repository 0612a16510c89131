package spoke_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
	"github.com/spawnmesh/spawnmesh/spoke/door"
)

// Both sides answer with the same result, and name the same signed messages.
func TestAResultNamesWhatShowsIt(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	task, _ := asked(t, m, "exit 3")
	var there, here api.TaskResult
	m.Hub.Do(t, "GET", "/api/v1/tasks/"+task+"/result", nil, &there)
	require.Equal(t, api.TaskResult{ID: task, ShortID: commands.ShortID(task), ResultState: api.TaskResultResultStateNotReady, State: "running", Attempt: 1}, there)

	s := m.Spokes["attic"]
	require.NoError(t, os.WriteFile(filepath.Join(s.Dir, "agents", task, "1", "work", "log"), []byte("good"), 0o600))
	say := door.Done{Summary: "fixed 3 files", Data: `{"x": 1e999999}`, Artifacts: []door.Named{{Name: "log", Path: "log"}}}
	require.NoError(t, doorOf(s, task, 1).Do(t.Context(), "POST", "/v1/done", say, nil))
	cancel(t, m.Hub.Instance, task, nil)
	end := m.Wait(t, task)
	m.Hub.Do(t, "GET", "/api/v1/tasks/"+task+"/result", nil, &there)
	s.Do(t, "GET", "/api/v1/tasks/"+task+"/result", nil, &here)

	require.Equal(t, []any{api.TaskResultResultStateReady, api.TaskState("cancelled"), "cancel_requested", 3}, []any{there.ResultState, there.State, there.StateReason, *there.ExitCode})
	require.Equal(t, end.EndedAt.UTC(), there.CompletedAt.UTC())
	require.NotEmpty(t, there.Summary)
	require.Equal(t, []any{api.AgentReport{As: "done", Text: "fixed 3 files"}, `{"x": 1e999999}`}, []any{there.Reported, there.Data})
	require.Equal(t, []api.Artifact{{Name: "log", Path: "log", Size: 4, Sha256: fmt.Sprintf("%x", sha256.Sum256([]byte("good")))}}, there.Artifacts)
	p := there.Provenance
	require.Equal(t, 1, m.Hub.Count(t, `SELECT count(*) FROM instance WHERE id = $1`, p.Hub))
	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM instance WHERE id = $1`, p.Spoke))
	require.Equal(t, []any{end.Conn, 1}, []any{p.Conn, p.Attempt})
	for box, message := range map[string]api.SignedMessage{"outbox": p.Order, "inbox": p.Result} {
		require.NotEmpty(t, message.Key)
		require.False(t, message.SignedAt.IsZero())
		require.Equal(t, 1, m.Hub.Count(t, `SELECT count(*) FROM `+box+` WHERE id = $1 AND kind = $2 AND encode(digest, 'hex') = $3`, message.ID, message.Kind, message.Sha256))
	}
	require.Equal(t, "agent.result", p.Result.Kind)
	require.Equal(t, p, here.Provenance, "both sides name the same")
	require.Equal(t, []any{there.Summary, there.Reported, there.Data, there.Artifacts}, []any{here.Summary, here.Reported, here.Data, here.Artifacts})
	err := m.Hub.Ask(t, "GET", "/api/v1/tasks/"+end.Conn+"/result", nil, nil)
	require.Equal(t, commands.NotFound, commands.CodeOf(err))
}

// What was refused has no outcome, and the signed refusal shows it.
func TestARefusalIsAResult(t *testing.T) {
	t.Parallel()
	m := meshtest.Plan{Policy: meshtest.Loose("version: 1\nruntimes: [exec]\ncommands: [\"true\"]\n")}.Start(t, "attic")
	task := m.Spawn(t, "attic", "false")
	m.Wait(t, task)
	var v api.TaskResult

	m.Hub.Do(t, "GET", "/api/v1/tasks/"+task+"/result", nil, &v)

	require.Equal(t, []any{api.TaskState("unavailable"), "", ""}, []any{v.State, v.Outcome, v.Summary})
	require.Equal(t, "agent.refused", v.Provenance.Result.Kind)
}
