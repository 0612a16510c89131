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

// cancel cancels a task at an instance, and returns what it answers.
func cancel(t *testing.T, at *meshtest.Instance, task string, more map[string]any) (k hub.Killed) {
	t.Helper()
	body := map[string]any{"reason": "not needed", "wait_ms": 60_000}
	if more["graceful"] == true {
		delete(body, "wait_ms") // what runs has all the time that it takes
	}
	for name, v := range more {
		body[name] = v
	}
	at.Do(t, "POST", "/api/v1/tasks/"+task+"/cancel", body, &k)
	return k
}

// asked is an agent that says that it runs, and what it does when it is asked to end.
func asked(t *testing.T, m *meshtest.Mesh, onTerm string) (task, dir string) {
	t.Helper()
	dir = t.TempDir()
	task = m.Spawn(t, "attic", "sh", "-c", `cd "$0"; trap '`+onTerm+`' TERM; touch up; while [ ! -e go ]; do sleep 0.05; done; exit 0`, dir)
	meshtest.Await(t, "the agent", func() bool { _, err := os.Stat(filepath.Join(dir, "up")); return err == nil })
	m.Await(t, task, commands.Running)
	return task, dir
}

func TestCancelEndsByTheBestEvidence(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	for name, tt := range map[string]struct {
		onTerm string
		wait   int
		state  commands.State
		exit   int
	}{
		"it ends well":            {"exit 0", 60_000, commands.Completed, 0},
		"it ends otherwise":       {"exit 7", 60_000, commands.Cancelled, 7},
		"it does not listen":      {"", 200, commands.Cancelled, -1},
		"it is not given a time":  {"exit 0", 0, commands.Cancelled, -1},
		"it is asked by the host": {"exit 7", 60_000, commands.Cancelled, 7},
	} {
		t.Run(name, func(t *testing.T) {
			task, _ := asked(t, m, tt.onTerm)
			at := m.Hub.Instance
			if name == "it is asked by the host" {
				at = m.Spokes["attic"].Instance
			}

			cancel(t, at, task, map[string]any{"wait_ms": tt.wait})

			v := m.Wait(t, task)
			require.Equal(t, tt.state, v.State)
			require.Equal(t, commands.CancelRequested, v.Reason)
			r, ok := commands.ReadResult(v.Result)
			require.True(t, ok)
			if tt.wait > 0 {
				require.Equal(t, tt.exit, r.Exit.Code, "%s", v.Result)
			}
		})
	}
	m.Check(t)
}

// Who ends well when it is killed was killed all the same, and so was one that is cancelled after its time was up.
func TestWhatEndsWellWasKilledAllTheSame(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	outcome := func(task string) []any {
		v := m.Wait(t, task)
		r, ok := commands.ReadResult(v.Result)
		require.True(t, ok)
		return []any{v.State, r.Outcome, r.Exit.Code}
	}
	killed, _ := asked(t, m, "exit 0")
	dir := t.TempDir()
	late := m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeExec, TimeoutMS: 1000,
		Argv: []string{"sh", "-c", `trap 'touch "$0/asked"; while [ ! -e "$0/go" ]; do sleep 0.05; done; exit 0' TERM; while :; do sleep 0.05; done`, dir}}})

	kill(t, m, killed, commands.MaxGrace.Milliseconds())

	require.Equal(t, []any{commands.Cancelled, commands.AttemptKilled, 0}, outcome(killed))
	meshtest.Await(t, "the end of its time", func() bool { _, err := os.Stat(filepath.Join(dir, "asked")); return err == nil })
	cancel(t, m.Hub.Instance, late, nil)
	meshtest.Await(t, "the cancel", func() bool {
		return m.Spokes["attic"].Count(t, `SELECT count(*) FROM leases WHERE task = $1 AND reason = 'cancel_requested'`, late) == 1
	})
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o600))
	require.Equal(t, []any{commands.Cancelled, commands.AttemptKilled, 0}, outcome(late))
	m.Check(t)
}

// The order of a cancel: it is recorded while nobody can be reached, obeyed once, and
// comes too late without harm.
func TestCancelIsRecordedWithoutItsSpoke(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	task, _ := asked(t, m, "exit 7")
	m.Stop(t, "attic")

	k := cancel(t, m.Hub.Instance, task, nil)

	require.True(t, k.Ordered)
	require.Equal(t, commands.Running, k.State)
	require.Equal(t, "unavailable", m.Agent(t, task).ProtocolCancel)
	require.Equal(t, 1, m.Hub.Count(t, `SELECT count(*) FROM audit WHERE action = 'task.cancel_ordered' AND object = $1 AND why = 'not needed'`, task))

	waits := m.Spawn(t, "attic", "sleep", "60")
	cancel(t, m.Hub.Instance, waits, nil)
	m.Start(t, "attic")
	v := m.Wait(t, task)
	require.Equal(t, commands.Cancelled, v.State)
	require.Equal(t, "sent", v.ProtocolCancel)
	w := m.Wait(t, waits)
	require.Equal(t, []any{commands.Cancelled, commands.CancelRequested}, []any{w.State, w.Reason}, "the cancel overtakes the order")
	require.Zero(t, m.Spokes["attic"].Count(t, `SELECT count(*) FROM attempts WHERE task = $1`, waits))

	late := cancel(t, m.Hub.Instance, task, nil)
	require.False(t, late.Ordered)
	require.Equal(t, commands.Cancelled, late.State)
	require.Equal(t, v.EndedAt, m.Agent(t, task).EndedAt)
	m.Check(t)
}

// A graceful cancel lets the attempt finish as it will, over a restart of its spoke too, and no other follows.
func TestAGracefulCancelLetsTheAttemptFinish(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	well, dir := asked(t, m, "exit 9")
	ill := m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeExec, MaxRetries: 5,
		Argv: []string{"sh", "-c", `while [ ! -e "$0/go" ]; do sleep 0.05; done; exit 3`, dir}}})
	m.Await(t, ill, commands.Running)

	cancel(t, m.Hub.Instance, well, map[string]any{"graceful": true})
	cancel(t, m.Hub.Instance, ill, map[string]any{"graceful": true})
	meshtest.Await(t, "the cancels", func() bool {
		return m.Spokes["attic"].Count(t, `SELECT count(*) FROM leases WHERE reason = 'cancel_requested'`) == 2
	})
	m.Stop(t, "attic")
	m.Start(t, "attic")
	m.AwaitLink(t, "attic")
	require.Equal(t, commands.Running, m.Agent(t, well).State)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o600))

	v, w := m.Wait(t, well), m.Wait(t, ill)
	require.Equal(t, []any{commands.Completed, commands.CancelRequested}, []any{v.State, v.Reason})
	require.Equal(t, []any{commands.Failed, commands.CancelRequested, 1}, []any{w.State, w.Reason, w.Attempt})
	m.Check(t)
}

// A kill that comes after a cancel is a kill.
func TestAKillWinsOverACancel(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	task, _ := asked(t, m, "")
	cancel(t, m.Hub.Instance, task, map[string]any{"wait_ms": commands.MaxGrace / time.Millisecond})

	kill(t, m, task, 0)

	v := m.Wait(t, task)
	require.Equal(t, []any{commands.Cancelled, commands.KillRequested}, []any{v.State, v.Reason})
	m.Check(t)
}

// A kill and a cancel that the grant does not allow are refused, and their hub says so; given again they end the agent.
func TestAHubSaysThatItsKillIsRefused(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	task, _ := asked(t, m, "")
	m.Spokes["attic"].Exec(t, `UPDATE grants SET kinds = array_remove(kinds, 'agent.kill')`)

	cancel(t, m.Hub.Instance, task, nil)
	meshtest.Await(t, "the refusal", func() bool { return m.Agent(t, task).ProtocolCancel == "refused" })
	kill(t, m, task, 0)
	meshtest.Await(t, "the refusal", func() bool {
		return m.Hub.Count(t, `SELECT count(*) FROM audit WHERE action = 'task.kill_refused' AND object = $1 AND code = 'GRANT'`, task) == 1
	})

	v := m.Agent(t, task)
	require.Equal(t, []any{commands.Running, json.RawMessage(nil), ""}, []any{v.State, v.Kill, v.ProtocolCancel})
	require.Equal(t, "attic refused it: the grant of this connection does not allow agent.kill", v.NotKilled())
	var why struct{ Reasons []struct{ Text, Fix string } }
	m.Hub.Do(t, "GET", "/api/v1/tasks/"+task+"/why", nil, &why)
	require.Contains(t, why.Reasons[1].Text, "enough; "+v.NotKilled())
	require.Equal(t, "once its host allows it: spawnmesh kill "+v.ShortID+" --reason WHY", why.Reasons[1].Fix)
	selection := map[string]any{"all": true, "ids": []string{task}, "reason": "all"}
	m.Spokes["attic"].Exec(t, `UPDATE grants SET kinds = kinds || '{agent.kill}'`)
	var sum hub.KillSummary
	m.Hub.Do(t, "POST", "/api/v1/tasks/kill", selection, &sum)
	require.Equal(t, 1, sum.Killed)
	require.Equal(t, commands.Cancelled, m.Wait(t, task).State)
	m.Check(t)
}
