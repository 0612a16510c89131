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

// A word about an agent whose second attempt runs is done to that, also where the backup has the first one as running: by its hub, whose
// word comes first over the new link, and by its host, which has no link.
func TestAWordIsNotAboutAnAttemptThatHasFailedSince(t *testing.T) {
	t.Parallel()
	m := meshtest.Plan{Lease: 10 * time.Minute, Slots: 16}.Start(t, "attic")
	s := m.Spokes["attic"]
	agents := map[string]counter{}
	for _, said := range []string{"kill", "let finish", "kill here", "let finish here"} {
		dir := t.TempDir()
		c := counter{m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeExec, MaxRetries: 1, BackoffMS: 1,
			Argv: []string{"sh", "-c", `cd "$0"; if [ -e failed ]; then while [ ! -e go ]; do echo x >>n; sleep 0.01; done; exit; fi; while [ ! -e fail ]; do sleep 0.01; done; touch failed; exit 3`, dir}}}), dir}
		m.Await(t, c.task, commands.Running)
		agents[said] = c
	}
	m.Stop(t, "attic")
	backup := s.Backup(t)
	m.Start(t, "attic")
	m.AwaitLink(t, "attic")
	for _, c := range agents {
		require.NoError(t, os.WriteFile(filepath.Join(c.dir, "fail"), nil, 0o600))
	}
	for _, c := range agents {
		moves(t, c.far)
		meshtest.Await(t, "that its hub knows", func() bool { return m.Agent(t, c.task).Attempt == 2 })
	}
	s.Proxy.Cut()
	m.Stop(t, "attic")
	m.Hub.Do(t, "POST", "/api/v1/tasks/"+agents["kill"].task+"/kill", map[string]any{"reason": "enough"}, nil)
	cancel(t, m.Hub.Instance, agents["let finish"].task, map[string]any{"graceful": true})
	s.Restore(t, backup)
	m.Start(t, "attic")

	s.Do(t, "POST", "/api/v1/tasks/"+agents["kill here"].task+"/kill", map[string]any{"reason": "enough"}, nil)
	cancel(t, s.Instance, agents["let finish here"].task, map[string]any{"graceful": true})

	meshtest.Await(t, "that it is killed", func() bool {
		return s.Count(t, `SELECT count(*) FROM tasks WHERE id = $1 AND state = 'cancelled' AND attempt = 2`, agents["kill here"].task) == 1
	})
	s.Proxy.Heal()
	for _, said := range []string{"kill", "kill here"} {
		v := m.Wait(t, agents[said].task)
		require.Equal(t, []any{commands.Cancelled, 2}, []any{v.State, v.Attempt}, said)
		stands(t, agents[said].far)
	}
	for _, said := range []string{"let finish", "let finish here"} {
		c := agents[said]
		meshtest.Await(t, "that its attempt is the last one", func() bool {
			return s.Count(t, `SELECT count(*) FROM leases WHERE task = $1 AND attempt = 2 AND reason = 'cancel_requested'`, c.task) == 1
		})
		moves(t, c.far)
		c.finish(t)
		v := m.Wait(t, c.task)
		require.Equal(t, []any{commands.Completed, 2}, []any{v.State, v.Attempt}, said)
	}
}
