package spoke_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
)

// requireReason: a task has ended in a state for a reason, and status and why of its hub say so.
func requireReason(t *testing.T, m *meshtest.Mesh, task string, state commands.State, reason commands.Reason, says string) hub.AgentView {
	t.Helper()
	v := m.Wait(t, task)
	require.Equal(t, state, v.State, "%s", v.Sentence())
	require.Equal(t, reason, v.Reason, "%s", v.Sentence())
	require.Regexp(t, says, v.Sentence())
	var w api.TaskWhy
	m.Hub.Do(t, "GET", "/api/v1/tasks/"+task+"/why", nil, &w)
	require.NotEmpty(t, w.Reasons)
	require.Regexp(t, says, w.Reasons[0].Text)
	return v
}

// A task has the limit that ended its agent as its reason, with what was allowed. Memory is held by a cgroup where there is one, and is
// measured elsewhere: the reason is the same.
func TestALimitIsTheReasonOfATask(t *testing.T) {
	t.Parallel()
	for limit, tt := range map[string]struct {
		script  string
		reason  commands.Reason
		unit    string
		allowed int64
		says    string
	}{
		"idle: 2s":         {"echo begun; sleep 600", commands.IdleTimeout, "ms", 2000, "ended as idle: "},
		"cpu_time: 1s":     {"while :; do :; done", commands.CPULimit, "ms", 1000, "processor"},
		"memory: 64MiB":    {`exec awk 'BEGIN { s = "0123456789abcdef"; for (i = 0; i < 23; i++) s = s s; system("sleep 600") }'`, commands.OOMKilled, "bytes", 64 << 20, "out of memory"},
		"max_output: 1MiB": {"yes", commands.OutputLimit, "bytes", 1 << 20, "output"},
	} {
		t.Run(string(tt.reason), func(t *testing.T) {
			t.Parallel()
			m := meshtest.Plan{Policy: meshtest.Loose(limitedTo(limit))}.Start(t, "attic")

			v := requireReason(t, m, m.Spawn(t, "attic", "sh", "-c", tt.script), commands.Failed, tt.reason, tt.says)

			b := resultOf(t, v).Exit.Breach
			require.NotNil(t, b)
			require.Equal(t, commands.Breach{Limit: tt.reason, Unit: tt.unit, Allowed: tt.allowed, Measured: b.Measured}, *b)
			m.Check(t)
		})
	}
}

// What a spoke refuses, for its grant or as it has another order under that id, is the reason of the task.
func TestARefusalIsTheReasonOfATask(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	other := second(t, m)
	id := storetest.NewID()
	asked := func(argv ...string) hub.SpawnRequest {
		return hub.SpawnRequest{ID: id, Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeExec, Argv: argv}}
	}
	require.Equal(t, commands.Completed, m.Wait(t, m.Order(t, asked("true"))).State)

	requireReason(t, other, other.Order(t, asked("false")), commands.Unavailable, commands.IDUsed, "TASK_CONFLICT")

	m.Spokes["attic"].Exec(t, `UPDATE grants SET runtimes = '{noop}'`)
	requireReason(t, m, m.Spawn(t, "attic", "true"), commands.Unavailable, commands.GrantDenied, "the grant of this connection does not allow runtime exec")
	m.Check(t)
}
