package spoke_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// What a hub recalls to have begun, and of which nothing is here, waits for the end of what the hub says. A hub that never comes to it keeps
// no slot from others, and what waits may be ended, by its host and by the hub.
func TestWhatWaitsForItsHubTakesNoSlot(t *testing.T) {
	t.Parallel()
	r := meshtest.Plan{Slots: 1, Lease: time.Hour}.Rogue(t) // no lease ends meanwhile
	done(t, r)
	freeze := func(lift string) {
		r.Spoke.Do(t, "POST", "/api/v1/workspaces/main/freezes"+lift, map[string]any{"scope": "instance", "reason": "the test says so"}, nil)
	}
	freeze("")
	var tasks []string
	var standing []commands.TaskStanding
	for range 4 {
		task := meshtest.NewID()
		order := r.Seal(t, &commands.Spawn{Task: task, Runtime: commands.RuntimeExec, Argv: []string{"true"}}, nil, nil)
		r.Send(t, commands.QueueRun, order.Envelope)
		r.Answer(t, order.ID, commands.AcceptedKind)
		tasks = append(tasks, task)
		standing = append(standing, commands.TaskStanding{Task: task, Command: order.ID, SHA256: order.Body.String(), Attempt: 1, State: commands.Running, Code: -1})
	}
	r.Says(func(b *commands.Heartbeat, _ *signing.Header) {
		b.Connection.Numbers.Recalled = &commands.Recalled{From: 1, Through: 128, Tasks: standing}
	})
	r.Spoke.Exec(t, `UPDATE sequences SET recall_from = 1, last = 1 << 20`)
	why := func(task string) (w backlog.Why) {
		r.Spoke.Do(t, "GET", "/api/v1/tasks/"+task+"/why", nil, &w)
		return w
	}
	for _, task := range tasks {
		meshtest.Await(t, "the attempt to wait", func() bool {
			w := why(task)
			return len(w.Reasons) > 0 && w.Reasons[0].Code == commands.CauseHistories
		})
		reason := why(task).Reasons[0]
		require.Contains(t, reason.Text, "the attempt ends when lab has said all that became of its work, and takes no slot until then")
		require.Equal(t, commands.Line("kill", commands.ShortID(task), "--reason", "WHY"), reason.Fix)
	}
	freeze("/lift")

	other, task := r.Noop(t, nil)
	r.Send(t, commands.QueueRun, other.Envelope)
	meshtest.Await(t, "another agent", func() bool {
		return r.Spoke.Count(t, `SELECT count(*) FROM tasks WHERE id = $1 AND state = 'completed'`, task) == 1
	})

	require.Equal(t, 4, r.Spoke.Count(t, `SELECT count(*) FROM leases`), "the others go on waiting")
	r.Spoke.Exec(t, `UPDATE leases SET started_at = clock_timestamp() WHERE task = ANY ($1)`, tasks[:2]) // a kill of what had not begun closes its lease itself
	r.Spoke.Do(t, "POST", "/api/v1/tasks/"+tasks[0]+"/kill", map[string]any{"reason": "enough"}, nil)
	kill := r.Seal(t, &commands.Kill{Task: tasks[1], Reason: "enough"}, nil, nil)
	r.Send(t, commands.QueueControl, kill.Envelope)
	for task, reason := range map[string]commands.Reason{tasks[0]: commands.Operator, tasks[1]: commands.KillRequested} {
		meshtest.Await(t, "the end of what was killed", func() bool {
			return r.Spoke.Count(t, `SELECT count(*) FROM tasks WHERE id = $1 AND state = 'cancelled' AND reason = $2`, task, string(reason)) == 1
		})
	}
	require.Equal(t, 2, r.Spoke.Count(t, `SELECT count(*) FROM leases`))

	r.Says(func(b *commands.Heartbeat, _ *signing.Header) {
		b.Connection.Numbers.Recalled = &commands.Recalled{From: 129, Through: 128, Done: true}
	})
	meshtest.Await(t, "the end of the others", func() bool {
		return r.Spoke.Count(t, `SELECT count(*) FROM tasks WHERE id = ANY ($1) AND state = 'failed' AND reason = 'executor_died'`, tasks[2:]) == 2
	})
}
