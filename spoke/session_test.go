package spoke_test

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
	"github.com/spawnmesh/spawnmesh/spoke"
	"github.com/spawnmesh/spawnmesh/spoke/door"
)

// The session that an agent has registered is live while it runs, adopted behind a restart of its spoke, resumable once its agent is lost, given
// to the next attempt, and retired with its task.
func TestTheLifeOfASession(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	s := m.Spokes["attic"]
	r := hub.SpawnRequest{Spoke: "attic", Spawn: shell(`echo "session:$SPAWNMESH_SESSION"; sleep 600`)}
	r.Spawn.OnLoss = commands.LossReruns
	task := m.Order(t, r)
	m.Await(t, task, commands.Running)
	stands := func(id string, state commands.SessionState) {
		t.Helper()
		meshtest.Await(t, "the session to be "+string(state), func() bool {
			var v api.Task
			s.Do(t, "GET", "/api/v1/tasks/"+task, nil, &v)
			return v.Session == id && v.SessionState == string(state)
		})
	}
	stands("", "")
	require.NoError(t, doorOf(s, task, 1).Do(t.Context(), "PUT", "/v1/session", door.Session{ID: "abc-1"}, nil))
	stands("abc-1", commands.Live)
	m.Stop(t, "attic")
	m.Start(t, "attic")
	stands("abc-1", commands.Adopted)

	require.NoError(t, syscall.Kill(s.Count(t, `SELECT shim_pid FROM sessions WHERE task = $1`, task), syscall.SIGKILL))
	stands("abc-1", commands.Resumable)
	s.Exec(t, `UPDATE tasks SET not_before = NULL`)
	s.Exec(t, `UPDATE due SET at = now()`)
	out := filepath.Join(s.Dir, "agents", task, "2", "control", "stdout")
	require.Eventually(t, func() bool {
		raw, _ := os.ReadFile(out)
		return string(raw) == "session:abc-1\n"
	}, meshtest.Patience, 50*time.Millisecond)
	stands("abc-1", commands.Live)

	m.Hub.Do(t, "POST", "/api/v1/tasks/"+task+"/kill", map[string]any{"reason": "enough", "grace_ms": 0}, nil)
	m.Wait(t, task)
	stands("abc-1", commands.Retired)
}

// The agent of an attempt goes on where no spoke runs, whatever it waits for, and its session with it.
func TestTheSessionOfWhatStandsStill(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	s := m.Spokes["attic"]
	task, _, _ := counting(t, m, commands.Spawn{})
	require.NoError(t, doorOf(s, task, 1).Do(t.Context(), "PUT", "/v1/session", door.Session{ID: "abc-1"}, nil))
	say(t, m.Hub.Instance, task, "pause")
	m.Await(t, task, commands.Paused)
	m.Stop(t, "attic")
	in := s.Visit(t)
	defer func() { require.NoError(t, in.Close(context.Background())) }()
	for state, set := range map[commands.State]string{
		commands.Paused:        `UPDATE leases SET asking = false, paused = true, paused_at = now()`,
		commands.AwaitingInput: `UPDATE leases SET asking = true, paused = false, paused_at = NULL`,
		commands.Running:       `UPDATE leases SET asking = false, paused = false, paused_at = NULL`,
	} {
		s.Exec(t, set)

		v, err := spoke.DeskOf(in.DB, s.Dir).Agent(t.Context(), task, 0)

		require.NoError(t, err)
		require.Equal(t, []any{state, commands.Live}, []any{v.State, v.SessionState})
	}
}
