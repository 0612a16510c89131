package spoke_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
)

// An agent that was told to end after the backup that its spoke is restored from has ended, also where its hub was not told: its record
// is believed, and it does not run again. One that overran its estimate has failed, as it had.
func TestWhatWasEndedAfterTheBackupStaysEnded(t *testing.T) {
	t.Parallel()
	m := meshtest.Plan{Lease: 10 * time.Minute, Slots: 16, Overrun: time.Second}.Start(t, "attic")
	s := m.Spokes["attic"]
	agent := func(script string, more commands.Spawn) string {
		more.Runtime, more.Argv, more.OnLoss = commands.RuntimeExec, []string{"sh", "-c", script}, commands.LossReruns
		return m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: more})
	}
	const sleeps, ends = "sleep 600", "trap 'exit 0' TERM; while :; do sleep 0.1; done"
	killed, cancelled := agent(sleeps, commands.Spawn{}), agent(ends, commands.Spawn{})
	m.Await(t, killed, commands.Running)
	m.Await(t, cancelled, commands.Running)
	lift := heldBack(t, s)
	late, slow := agent(sleeps, commands.Spawn{TimeoutMS: 1000}), agent(sleeps, commands.Spawn{EstimateMS: 100})
	for _, task := range []string{late, slow} {
		meshtest.Await(t, "that it waits", func() bool { return m.Agent(t, task).AcceptedAt != nil })
	}
	m.Stop(t, "attic")
	backup := s.Backup(t)
	m.Start(t, "attic")
	last := m.Noop(t, "attic") // where it is taken the new link is judged
	meshtest.Await(t, "that it waits", func() bool { return m.Agent(t, last).AcceptedAt != nil })
	meshtest.Await(t, "that agents may start", func() bool { return s.Count(t, `SELECT count(*) FROM grants_in_force`) == 1 })
	s.Proxy.Cut()
	lift()
	s.Do(t, "POST", "/api/v1/tasks/"+killed+"/kill", map[string]any{"reason": "enough", "grace_ms": 0}, nil)
	cancel(t, s.Instance, cancelled, nil)
	meshtest.Await(t, "their ends", func() bool {
		return s.Count(t, `SELECT count(*) FROM tasks t WHERE is_terminal(state) OR EXISTS (SELECT FROM ended_attempts e WHERE e.task = t.id AND number = 1)`) == 5
	})
	m.Stop(t, "attic")
	s.Restore(t, backup)
	s.Exec(t, `UPDATE leases SET claimed_at = claimed_at + interval '1 hour', started_at = started_at + interval '1 hour'`) // its clock was ahead, or is behind on this host

	m.Start(t, "attic")
	s.Proxy.Heal()
	lift()

	for task, state := range map[string]commands.State{killed: commands.Cancelled, cancelled: commands.Completed, late: commands.Expired} {
		v := m.Wait(t, task)
		require.Equal(t, []any{state, 1}, []any{v.State, v.Attempt})
	}
	v := m.Wait(t, slow)
	require.Equal(t, []any{commands.Failed, commands.Overrun, 1}, []any{v.State, v.Reason, v.Attempt})
	require.NotContains(t, s.Log.String(), "the files of an attempt were changed")
	m.Check(t)
}
