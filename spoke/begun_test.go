package spoke_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
)

// A counter is an agent that counts until it is told to finish, and how far it has come.
type counter struct {
	task, dir string
}

// count orders one.
func count(t *testing.T, m *meshtest.Mesh) counter {
	t.Helper()
	dir := t.TempDir()
	return counter{m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeExec,
		Argv: []string{"sh", "-c", `cd "$0"; (while [ ! -e go ]; do echo x >>n; sleep 0.01; done) & wait $!`, dir}}}), dir}
}

func (c counter) far() int64 {
	info, err := os.Stat(filepath.Join(c.dir, "n"))
	if err != nil {
		return 0
	}
	return info.Size()
}

func (c counter) finish(t *testing.T) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(c.dir, "go"), nil, 0o600))
}

// heldBack keeps agents from being started at the spoke, until it is called.
func heldBack(t *testing.T, s *meshtest.Spoke) (lift func()) {
	t.Helper()
	freeze := func(path string) {
		s.Do(t, "POST", "/api/v1/workspaces/main/freezes"+path, map[string]any{"scope": "instance", "reason": "the test says so"}, nil)
	}
	freeze("")
	return func() { freeze("/lift") }
}

// What is said about an agent that waits in the backup, or is not in it, and that has begun since, is done to its process: by its hub, whose
// word comes again before the attempt could be taken over, and by its host, which has no link. So it is where nothing can be claimed.
func TestAWordAboutWhatBeganAfterTheBackupIsCarriedOut(t *testing.T) {
	t.Parallel()
	for name, unheard := range map[string]bool{"its hub knows that it began": false, "its hub was not told": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := meshtest.Plan{Lease: 10 * time.Minute, Slots: 16}.Start(t, "attic")
			s := m.Spokes["attic"]
			lift := heldBack(t, s)
			waiting := map[string]counter{}
			for _, said := range []string{"kill", "cancel", "let finish", "pause", "kill here", "pause here"} {
				c := count(t, m)
				meshtest.Await(t, "that it waits", func() bool { return m.Agent(t, c.task).AcceptedAt != nil })
				waiting[said] = c
			}
			m.Stop(t, "attic")
			backup := s.Backup(t)
			m.Start(t, "attic")
			m.AwaitLink(t, "attic")
			meshtest.Await(t, "that agents may start", func() bool { return s.Count(t, `SELECT count(*) FROM grants_in_force`) == 1 })
			for _, said := range []string{"kill what is not there", "pause what is not there"} {
				c := count(t, m)
				meshtest.Await(t, "that it waits", func() bool { return m.Agent(t, c.task).AcceptedAt != nil })
				waiting[said] = c
			}
			if unheard {
				s.Proxy.Cut()
			}
			lift()
			for _, c := range waiting {
				moves(t, c.far)
				if !unheard {
					m.Await(t, c.task, commands.Running)
				}
			}
			s.Proxy.Cut()
			waiting["let finish"].finish(t)
			meshtest.Await(t, "its end", func() bool {
				return s.Count(t, `SELECT count(*) FROM tasks WHERE id = $1 AND state = 'completed'`, waiting["let finish"].task) == 1
			})
			kill := func(said string) {
				m.Hub.Do(t, "POST", "/api/v1/tasks/"+waiting[said].task+"/kill", map[string]any{"reason": "enough"}, nil)
			}
			kill("kill")
			kill("kill what is not there")
			cancel(t, m.Hub.Instance, waiting["cancel"].task, nil)
			cancel(t, m.Hub.Instance, waiting["let finish"].task, map[string]any{"graceful": true})
			say(t, m.Hub.Instance, waiting["pause"].task, "pause")
			say(t, m.Hub.Instance, waiting["pause what is not there"].task, "pause")
			m.Stop(t, "attic")
			s.Restore(t, backup)
			m.Start(t, "attic")

			s.Do(t, "POST", "/api/v1/tasks/"+waiting["kill here"].task+"/kill", map[string]any{"reason": "enough"}, nil)
			say(t, s.Instance, waiting["pause here"].task, "pause")

			meshtest.Await(t, "that it is paused", func() bool {
				return s.Count(t, `SELECT count(*) FROM leases WHERE task = $1 AND paused_at IS NOT NULL`, waiting["pause here"].task) == 1
			})
			stands(t, waiting["pause here"].far)
			meshtest.Await(t, "that it is killed", func() bool {
				return s.Count(t, `SELECT count(*) FROM tasks WHERE id = $1 AND state = 'cancelled'`, waiting["kill here"].task) == 1
			})
			stands(t, waiting["kill here"].far)
			s.Proxy.Heal()
			for _, said := range []string{"kill", "kill what is not there", "cancel", "kill here"} {
				v := m.Wait(t, waiting[said].task)
				require.Equal(t, []any{commands.Cancelled, 1}, []any{v.State, v.Attempt}, said)
				stands(t, waiting[said].far)
			}
			v := m.Wait(t, waiting["let finish"].task)
			require.Equal(t, []any{commands.Completed, 1}, []any{v.State, v.Attempt})
			for _, said := range []string{"pause", "pause what is not there", "pause here"} {
				c := waiting[said]
				m.Await(t, c.task, commands.Paused)
				require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM leases WHERE task = $1 AND paused_at IS NOT NULL`, c.task), said)
				stands(t, c.far)
				say(t, m.Hub.Instance, c.task, "resume")
				moves(t, c.far)
				c.finish(t)
				v := m.Wait(t, c.task)
				require.Equal(t, []any{commands.Completed, 1}, []any{v.State, v.Attempt}, said)
			}
			m.Check(t)
		})
	}
}

// An order that waits in the backup, and has begun since, is neither moved by hand nor ended by its time while nothing can be claimed.
// Its process is taken over.
func TestWhatBeganAfterTheBackupIsMovedByNobody(t *testing.T) {
	t.Parallel()
	m := meshtest.Plan{Lease: 10 * time.Minute}.Start(t, "attic")
	s := m.Spokes["attic"]
	lift := heldBack(t, s)
	c := count(t, m)
	meshtest.Await(t, "that it waits", func() bool { return m.Agent(t, c.task).AcceptedAt != nil })
	m.Stop(t, "attic")
	backup := s.Backup(t)
	m.Start(t, "attic")
	lift()
	moves(t, c.far)
	s.Proxy.Cut()
	m.Stop(t, "attic")
	s.Restore(t, backup)
	m.Start(t, "attic")

	err := s.Ask(t, "POST", "/api/v1/workspaces/main/tasks/"+c.task+"/cancel", map[string]any{"reason": "enough"}, nil)
	s.Exec(t, `UPDATE ready SET expires_at = now() - interval '1 s'`)
	s.Do(t, "GET", "/api/v1/workspaces/main/tasks?ready_only=true", nil, nil)

	require.ErrorContains(t, err, "attempt 1 had begun before")
	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM ready WHERE task = $1 AND expires_at = 'infinity'`, c.task))
	moves(t, c.far)
	s.Exec(t, `DELETE FROM freezes`)
	s.Proxy.Heal()
	c.finish(t)
	v := m.Wait(t, c.task)
	require.Equal(t, []any{commands.Completed, 1}, []any{v.State, v.Attempt})
	m.Check(t)
}
