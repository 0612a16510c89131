package spoke_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
)

// stubborn spawns an agent that ignores TERM, and has it killed with a grace that no
// test outlasts. It ends when the file up is gone.
func stubborn(t *testing.T, m *meshtest.Mesh, by killer) (task, up string) {
	t.Helper()
	up = filepath.Join(t.TempDir(), "up")
	task = m.Spawn(t, "attic", "sh", "-c", `trap "" TERM; touch "$0"; while [ -e "$0" ]; do sleep 0.1; done`, up)
	meshtest.Await(t, "the agent", func() bool { _, err := os.Stat(up); return err == nil })
	m.Await(t, task, commands.Running)
	by(t, m, task, "enough", commands.MaxGrace.Milliseconds())
	meshtest.Await(t, "the first kill", func() bool {
		return m.Spokes["attic"].Count(t, `SELECT count(*) FROM kills WHERE task = $1`, task) == 1
	})
	return task, up
}

func kill(t *testing.T, m *meshtest.Mesh, task string, graceMS int64) {
	t.Helper()
	byHub(t, m, task, "enough", graceMS)
}

// A killer orders a kill of an agent that runs on attic.
type killer func(t *testing.T, m *meshtest.Mesh, task, reason string, graceMS int64)

func byHub(t *testing.T, m *meshtest.Mesh, task, reason string, graceMS int64) {
	t.Helper()
	m.Hub.Do(t, "POST", "/api/v1/tasks/"+task+"/kill", map[string]any{"reason": reason, "grace_ms": graceMS}, nil)
}

func byHost(t *testing.T, m *meshtest.Mesh, task, reason string, graceMS int64) {
	t.Helper()
	m.Spokes["attic"].Do(t, "POST", "/api/v1/tasks/"+task+"/kill", map[string]any{"reason": reason, "grace_ms": graceMS}, nil)
}

func TestASecondKillHastensTheFirst(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	task, _ := stubborn(t, m, byHub)

	kill(t, m, task, 0)

	v := m.Wait(t, task)
	require.Equal(t, commands.Cancelled, v.State)
	require.Equal(t, commands.KillRequested, v.Reason)
	m.Check(t)
}

// A kill takes the fence of its attempt, so the next renewal finds it lost. The agent
// has its grace all the same.
func TestAKillWaitsThroughRenewals(t *testing.T) {
	t.Parallel()
	m := meshtest.Plan{Lease: 6 * time.Second}.Start(t, "attic")
	s, dir := m.Spokes["attic"], t.TempDir()
	up, gate := filepath.Join(dir, "up"), filepath.Join(dir, "gate")
	other := sleeper(t, m)
	task := m.Spawn(t, "attic", "sh", "-c", `trap 'while [ ! -e "$1" ]; do sleep 0.1; done; exit 7' TERM; touch "$0"; while :; do sleep 0.1; done`, up, gate)
	meshtest.Await(t, "the agent", func() bool { _, err := os.Stat(up); return err == nil })
	m.Await(t, task, commands.Running)

	kill(t, m, task, commands.MaxGrace.Milliseconds())

	meshtest.Await(t, "the kill", func() bool { return s.Count(t, `SELECT count(*) FROM kills WHERE task = $1`, task) == 1 })
	for range 3 { // one renewal is for all agents
		renewed := func() int {
			return s.Count(t, `SELECT coalesce(max(extract(epoch FROM renewed_at) * 1000000), 0)::bigint FROM leases WHERE task = $1`, other)
		}
		before := renewed()
		meshtest.Await(t, "a renewal", func() bool { return renewed() != before })
	}
	require.NoError(t, os.WriteFile(gate, nil, 0o600))
	v := m.Wait(t, task)
	require.Equal(t, commands.Cancelled, v.State)
	var r commands.Result
	require.NoError(t, json.Unmarshal(v.Result, &r))
	require.Equal(t, 7, r.Exit.Code, "it ended by itself: %s", v.Result)
	kill(t, m, other, 0)
	m.Wait(t, other)
	m.Check(t)
}

// The shim goes on with a kill whose spoke stops, and hears the next one
// through the next spoke.
func TestAStopIsHeardDuringAKill(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	task, _ := stubborn(t, m, byHub)

	m.Stop(t, "attic")

	m.Start(t, "attic")
	m.AwaitLink(t, "attic")
	kill(t, m, task, 0)
	v := m.Wait(t, task)
	require.Equal(t, commands.Cancelled, v.State)
	m.Check(t)
}

// Of several kills both sides show the one that was in force when the agent ended.
func TestBothSidesShowTheKillThatWasInForce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		by, then killer
		second   int64 // ms of grace
		shown    string
		reason   commands.Reason
	}{
		"the first":                        {byHub, byHub, commands.MaxGrace.Milliseconds(), "enough", commands.KillRequested},
		"the second, which hastened it":    {byHub, byHub, 0, "no time", commands.KillRequested},
		"the second of the host":           {byHost, byHost, 0, "no time", commands.Operator},
		"the host's, which hastened a hub": {byHub, byHost, 0, "no time", commands.Operator},
		"the hub's, which hastened a host": {byHost, byHub, 0, "no time", commands.KillRequested},
		"the host's before a late hub's":   {byHost, byHub, commands.MaxGrace.Milliseconds(), "enough", commands.Operator},
		"the hub's before a late host's":   {byHub, byHost, commands.MaxGrace.Milliseconds(), "enough", commands.KillRequested},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := meshtest.Start(t, "attic")
			task, up := stubborn(t, m, c.by)

			c.then(t, m, task, "no time", c.second)

			meshtest.Await(t, "the second kill", func() bool {
				return m.Spokes["attic"].Count(t, `SELECT count(*) FROM kills WHERE task = $1`, task) == 2
			})
			if c.second > 0 { // it ends by itself
				require.NoError(t, os.Remove(up))
			}
			there, other := m.Wait(t, task), map[string]string{"enough": "no time", "no time": "enough"}[c.shown]
			require.Equal(t, c.reason, there.Reason)
			require.Contains(t, string(there.Kill)+string(there.Result), c.shown, "at the hub")
			require.NotContains(t, string(there.Kill)+string(there.Result), other, "at the hub")
			var here hub.AgentView
			m.Spokes["attic"].Do(t, "GET", "/api/v1/tasks/"+task, nil, &here)
			require.Contains(t, string(here.Kill), c.shown, "at the spoke")
			require.Equal(t, c.reason, here.Reason)
		})
	}
}

// A kill whose intake was committed by a process that then heard nothing of it is carried out
// when it comes again, and not with the next renewal of the lease.
func TestAKillThatComesAgainIsCarriedOut(t *testing.T) {
	t.Parallel()
	r := meshtest.Plan{Lease: time.Hour}.Rogue(t)
	task := meshtest.NewID()
	order := r.Seal(t, &commands.Spawn{Task: task, Runtime: commands.RuntimeExec, Argv: []string{"sleep", "600"}}, nil, nil)
	r.Send(t, commands.QueueRun, order.Envelope)
	r.Answer(t, order.ID, commands.StartedKind)
	kill := r.Seal(t, &commands.Kill{Task: task, Reason: "enough"}, nil, nil)
	r.Spoke.Exec(t, `INSERT INTO inbox (conn, id, seq, digest, kind, code, task, exp, envelope) SELECT conn, $1, $2, $3, 'agent.kill', '', $4, now() + interval '1 hour', $5 FROM inbox WHERE task = $4 LIMIT 1`,
		kill.ID, kill.Seq, kill.Digest[:], task, kill.Envelope)
	r.Spoke.Exec(t, `INSERT INTO kills (conn, command, digest, task, reason, grace, exp, tombstone) SELECT conn, $1, $2, $3, 'enough', interval '0', now() + interval '1 hour', false FROM leases WHERE task = $3`, kill.ID, kill.Body[:], task)
	r.Spoke.Exec(t, `UPDATE leases SET epoch = epoch + 1, reason = 'kill_requested' WHERE task = $1`, task)
	begun := time.Now()

	r.Send(t, commands.QueueControl, kill.Envelope)

	require.IsType(t, &commands.Result{}, r.Answer(t, order.ID, commands.ResultKind))
	require.Less(t, time.Since(begun), 15*time.Second, "leases are renewed every 20 seconds")
}
