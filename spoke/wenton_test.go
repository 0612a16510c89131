package spoke_test

import (
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
)

// A spoke whose backup has an agent as paused that went on since finds its process by itself: the agent goes on where its hub knows
// that, and stands still again where nobody does. Nothing is started twice.
func TestAnAgentThatWentOnAfterTheBackupIsFound(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		unheard bool // the hub was not told that it went on
		lost    bool // its processes are gone
		state   commands.State
	}{
		"its hub knows":             {state: commands.Running},
		"nobody knows":              {unheard: true, state: commands.Paused},
		"nobody knows, and it died": {unheard: true, lost: true, state: commands.Paused},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := meshtest.Plan{Lease: 5 * time.Minute}.Start(t, "attic")
			s := m.Spokes["attic"]
			task, far, pid := pausedUnbegun(t, m)
			m.Stop(t, "attic")
			backup := s.Backup(t)
			m.Start(t, "attic")
			m.AwaitLink(t, "attic")
			if tt.unheard {
				m.Wait(t, m.Noop(t, "attic")) // from here on agents may start, without the hub too
				s.Proxy.Cut()
			}
			say(t, s.Instance, task, "resume")
			moves(t, far)
			if !tt.unheard {
				m.Await(t, task, commands.Running)
			}
			m.Stop(t, "attic")
			shim := s.Count(t, `SELECT shim_pid FROM sessions WHERE task = $1`, task)
			s.Restore(t, backup)
			if tt.lost {
				require.NoError(t, syscall.Kill(shim, syscall.SIGKILL))
				require.NoError(t, syscall.Kill(pid(), syscall.SIGKILL))
			}

			m.Start(t, "attic")
			s.Proxy.Heal()

			meshtest.Await(t, "how it stands", func() bool {
				return s.Count(t, `SELECT count(*) FROM standing WHERE id = $1 AND state = $2::text::task_state AND attempt = 1 AND (owner IS NULL) = $3`, task, string(tt.state), tt.lost) == 1
			})
			m.Await(t, task, tt.state)
			switch {
			case tt.lost:
				meshtest.Await(t, "that its hub knows", func() bool { return m.Agent(t, task).Reason == commands.ExecutorDied })
				return // it runs again by the word of who resumes it
			case tt.state == commands.Paused:
				meshtest.Await(t, "that it is proven", func() bool {
					return s.Count(t, `SELECT count(*) FROM leases WHERE task = $1 AND paused_at IS NOT NULL`, task) == 1
				})
				stands(t, far)
				say(t, s.Instance, task, "resume")
			}
			moves(t, far)
			enough(t, m, task)
		})
	}
}

// pausedUnbegun is an agent that its host has paused before it began, how far it has come, and its process.
func pausedUnbegun(t *testing.T, m *meshtest.Mesh) (task string, far func() int64, pid func() int) {
	t.Helper()
	s, dir := m.Spokes["attic"], t.TempDir()
	freeze := func(path string) {
		s.Do(t, "POST", "/api/v1/workspaces/main/freezes"+path, map[string]any{"scope": "instance", "reason": "the test says so"}, nil)
	}
	freeze("")
	task = m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeExec,
		Argv: []string{"sh", "-c", `cd "$0"; echo $$ >pid; while :; do echo x >>n; sleep 0.01; done`, dir}}})
	meshtest.Await(t, "that it waits", func() bool { return m.Agent(t, task).AcceptedAt != nil })
	say(t, s.Instance, task, "pause")
	m.Await(t, task, commands.Paused)
	freeze("/lift")
	far = func() int64 {
		info, err := os.Stat(filepath.Join(dir, "n"))
		if err != nil {
			return 0
		}
		return info.Size()
	}
	pid = func() int {
		raw, err := os.ReadFile(filepath.Join(dir, "pid"))
		require.NoError(t, err)
		n, err := strconv.Atoi(string(raw[:len(raw)-1]))
		require.NoError(t, err)
		return n
	}
	return task, far, pid
}
