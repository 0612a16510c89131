package spoke_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
	"github.com/spawnmesh/spawnmesh/store"
)

// say pauses a task at an instance, or lets it go on, and returns what it answers.
func say(t *testing.T, at *meshtest.Instance, task, word string) (v hub.AgentView) {
	t.Helper()
	at.Do(t, "POST", "/api/v1/tasks/"+task+"/"+word, map[string]any{"reason": "the disk is full"}, &v)
	return v
}

// pauseOf is what a hub says of the pause of a task.
func pauseOf(t *testing.T, m *meshtest.Mesh, task string) (o store.OrderedPause) {
	t.Helper()
	require.NoError(t, json.Unmarshal(m.Agent(t, task).Pause, &o))
	return o
}

// counting is an agent whose child counts until it is told to end, and how far that has come. Asked to end it says so.
func counting(t *testing.T, m *meshtest.Mesh, more commands.Spawn) (task, dir string, far func() int64) {
	dir = t.TempDir()
	more.Runtime = commands.RuntimeExec
	more.Argv = []string{"sh", "-c", `cd "$0"; trap 'touch asked; exit 7' TERM; (while [ ! -e go ]; do echo x >>n; sleep 0.01; done) & wait $!; exit 0`, dir}
	task = m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: more})
	far = func() int64 {
		info, err := os.Stat(filepath.Join(dir, "n"))
		if err != nil {
			return 0
		}
		return info.Size()
	}
	m.Await(t, task, commands.Running)
	moves(t, far)
	return task, dir, far
}

func moves(t *testing.T, far func() int64) {
	t.Helper()
	was := far()
	meshtest.Await(t, "the agent goes on", func() bool { return far() > was })
}

func stands(t *testing.T, far func() int64) {
	t.Helper()
	was := far()
	time.Sleep(200 * time.Millisecond) // many times what a step takes
	require.Equal(t, was, far())
}

func TestPauseStopsAnAgentWhereItIs(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	task, dir, far := counting(t, m, commands.Spawn{})

	say(t, m.Hub.Instance, task, "pause")

	m.Await(t, task, commands.Paused)
	stands(t, far)
	o := pauseOf(t, m, task)
	require.Equal(t, []any{true, "the disk is full", store.PauseTaken}, []any{o.Paused, o.Reason, o.State})
	require.Equal(t, 1, m.Spokes["attic"].Count(t, `SELECT count(*) FROM leases WHERE task = $1 AND paused_at IS NOT NULL`, task), "it keeps its lease and its slot")
	require.Equal(t, 1, m.Hub.Count(t, `SELECT count(*) FROM audit WHERE action = 'task.pause_ordered' AND object = $1 AND why = 'the disk is full'`, task))

	say(t, m.Hub.Instance, task, "resume")
	m.Await(t, task, commands.Running)
	moves(t, far)

	say(t, m.Spokes["attic"].Instance, task, "pause")
	m.Await(t, task, commands.Paused)
	stands(t, far)
	say(t, m.Hub.Instance, task, "resume")
	m.Await(t, task, commands.Running)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o600))
	v := m.Wait(t, task)
	require.Equal(t, []any{commands.Completed, 1}, []any{v.State, v.Attempt})
	m.Check(t)
}

// A spoke that comes back finds what it has paused, and what was said meanwhile.
func TestAPauseOutlivesItsSpoke(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	stays, dir, far := counting(t, m, commands.Spawn{})
	goesOn, other, further := counting(t, m, commands.Spawn{})
	for _, task := range []string{stays, goesOn} {
		say(t, m.Hub.Instance, task, "pause")
		m.Await(t, task, commands.Paused)
	}
	m.Stop(t, "attic")
	say(t, m.Hub.Instance, goesOn, "resume")
	require.Equal(t, store.PauseSent, pauseOf(t, m, goesOn).State)
	stands(t, far)

	m.Start(t, "attic")

	m.Await(t, goesOn, commands.Running)
	moves(t, further)
	require.Equal(t, commands.Paused, m.Agent(t, stays).State)
	stands(t, far)
	say(t, m.Hub.Instance, stays, "resume")
	moves(t, far)
	for _, d := range []string{dir, other} {
		require.NoError(t, os.WriteFile(filepath.Join(d, "go"), nil, 0o600))
	}
	for _, task := range []string{stays, goesOn} {
		require.Equal(t, commands.Completed, m.Wait(t, task).State)
	}
	m.Check(t)
}

// A tree that stands still without a word of the database stays so: the database is of a time before its host paused it.
func TestAPauseThatIsNotRecordedStays(t *testing.T) {
	t.Parallel()
	m := meshtest.Plan{Lease: 3 * time.Second}.Start(t, "attic")
	s := m.Spokes["attic"]
	task, dir, far := counting(t, m, commands.Spawn{})
	say(t, s.Instance, task, "pause")
	m.Await(t, task, commands.Paused)
	m.Stop(t, "attic")
	s.Exec(t, `DELETE FROM pauses`)
	s.Exec(t, `UPDATE leases SET paused = false, paused_at = NULL`)

	m.Start(t, "attic")

	meshtest.Await(t, "the pause is noted", func() bool {
		return s.Count(t, `SELECT count(*) FROM leases WHERE task = $1 AND paused AND paused_at IS NOT NULL`, task) == 1
	})
	stands(t, far)
	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM audit WHERE actor = 'self' AND action = 'task.pause' AND object = $1 AND why LIKE '%found paused%'`, task))
	require.Contains(t, s.Log.String(), "agent found paused, and nothing says by whom")
	require.Equal(t, commands.Paused, m.Agent(t, task).State)
	say(t, m.Hub.Instance, task, "resume")
	m.Await(t, task, commands.Running)
	moves(t, far)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o600))
	require.Equal(t, commands.Completed, m.Wait(t, task).State)
}

// What a hub took of a pause that its spoke knows nothing of since a restore ends with the next word about it.
func TestAResumeOfWhatRunsIsAnswered(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	task, dir, _ := counting(t, m, commands.Spawn{})
	m.Hub.Exec(t, `UPDATE mirrors SET state = 'paused'`)

	say(t, m.Hub.Instance, task, "resume")

	m.Await(t, task, commands.Running)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o600))
	require.Equal(t, commands.Completed, m.Wait(t, task).State)
}

// What is lost while it is paused runs again by the word of who resumes it, and not before.
func TestWhatIsLostWhilePausedStaysPaused(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	s := m.Spokes["attic"]
	task, dir, far := counting(t, m, commands.Spawn{})
	say(t, m.Hub.Instance, task, "pause")
	m.Await(t, task, commands.Paused)
	require.NoError(t, syscall.Kill(s.Count(t, `SELECT shim_pid FROM sessions WHERE task = $1`, task), syscall.SIGKILL))
	meshtest.Await(t, "the loss", func() bool {
		return s.Count(t, `SELECT count(*) FROM parked WHERE task = $1 AND why = 'paused'`, task) == 1
	})
	stands(t, far)
	require.Equal(t, commands.Paused, m.Agent(t, task).State)

	say(t, m.Hub.Instance, task, "resume")

	meshtest.Await(t, "another attempt", func() bool { return m.Agent(t, task).Attempt == 2 })
	m.Await(t, task, commands.Running)
	moves(t, far)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o600))
	require.Equal(t, commands.Completed, m.Wait(t, task).State)
	m.Check(t)
}

// The end of a paused agent is that of any other: it is asked first, and has its grace.
func TestAPausedAgentEndsByAKill(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	for name, end := range map[string]func(task string){
		"a kill": func(task string) {
			m.Hub.Do(t, "POST", "/api/v1/tasks/"+task+"/kill", map[string]any{"reason": "enough", "grace_ms": 20_000}, nil)
		},
		"a cancel": func(task string) { cancel(t, m.Hub.Instance, task, nil) },
		"a kill by the host": func(task string) {
			m.Spokes["attic"].Do(t, "POST", "/api/v1/tasks/"+task+"/kill", map[string]any{"reason": "enough", "grace_ms": 20_000}, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			task, dir, _ := counting(t, m, commands.Spawn{})
			say(t, m.Hub.Instance, task, "pause")
			m.Await(t, task, commands.Paused)

			end(task)

			require.Equal(t, commands.Cancelled, m.Wait(t, task).State)
			require.FileExists(t, filepath.Join(dir, "asked"))
		})
	}
	m.Check(t)
}

// A graceful cancel lets a paused agent go on, so that it can finish, over a restart of its spoke too; nothing pauses it again.
func TestAGracefulCancelLetsAPausedAgentFinish(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	task, dir, far := counting(t, m, commands.Spawn{})
	other, otherDir, further := counting(t, m, commands.Spawn{})
	for _, id := range []string{task, other} {
		say(t, m.Hub.Instance, id, "pause")
		m.Await(t, id, commands.Paused)
	}

	cancel(t, m.Hub.Instance, task, map[string]any{"graceful": true})
	m.Await(t, task, commands.Running)
	moves(t, far)
	m.Stop(t, "attic")
	cancel(t, m.Hub.Instance, other, map[string]any{"graceful": true})
	m.Start(t, "attic")
	m.Await(t, other, commands.Running)
	moves(t, further)

	say(t, m.Hub.Instance, task, "pause")
	meshtest.Await(t, "the refusal", func() bool { return pauseOf(t, m, task).State == store.PauseRefused })
	require.Equal(t, commands.Conflict, pauseOf(t, m, task).Code)
	for _, d := range []string{dir, otherDir} {
		require.NoError(t, os.WriteFile(filepath.Join(d, "go"), nil, 0o600))
	}
	for _, id := range []string{task, other} {
		v := m.Wait(t, id)
		require.Equal(t, []any{commands.Completed, commands.CancelRequested, 1}, []any{v.State, v.Reason, v.Attempt})
	}
	m.Check(t)
}

// What waits is not started, also where the pause was said while the spoke was away and comes before the order.
func TestWhatIsPausedDoesNotStart(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	m.Stop(t, "attic")
	task, killed := m.Noop(t, "attic"), m.Noop(t, "attic")
	for _, id := range []string{task, killed} {
		v := say(t, m.Hub.Instance, id, "pause")
		require.Equal(t, commands.Queued, v.State)
	}

	m.Start(t, "attic")

	m.Await(t, task, commands.Paused)
	m.Await(t, killed, commands.Paused)
	require.Equal(t, commands.Completed, m.Wait(t, m.Noop(t, "attic")).State)
	require.Zero(t, m.Spokes["attic"].Count(t, `SELECT count(*) FROM attempts WHERE task = ANY ($1::uuid[])`, []string{task, killed}))
	cancel(t, m.Hub.Instance, killed, nil)
	require.Equal(t, commands.Cancelled, m.Wait(t, killed).State)
	say(t, m.Hub.Instance, task, "resume")
	require.Equal(t, commands.Completed, m.Wait(t, task).State)
	m.Check(t)
}

// A hub shows that its spoke does not pause: one that the grant of the connection does not allow, as one that knows no pause.
func TestARefusedPauseIsShown(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	task, dir, far := counting(t, m, commands.Spawn{})
	m.Spokes["attic"].Exec(t, `UPDATE grants SET kinds = array_remove(kinds, 'agent.pause')`)

	say(t, m.Hub.Instance, task, "pause")

	meshtest.Await(t, "the refusal", func() bool { return pauseOf(t, m, task).State == store.PauseRefused })
	require.Equal(t, commands.Grant, pauseOf(t, m, task).Code)
	require.Equal(t, commands.Running, m.Agent(t, task).State)
	moves(t, far)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o600))
	require.Equal(t, commands.Completed, m.Wait(t, task).State)
	m.Check(t)
}
