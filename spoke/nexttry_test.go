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

// The next attempt of an agent that has failed since the backup is taken over where it runs, whether its hub knows of it or not: its
// task waits for no back-off, in which nobody would renew its lease.
func TestTheNextTryAfterTheBackupIsTakenOver(t *testing.T) {
	t.Parallel()
	for name, unheard := range map[string]bool{"its hub knows that it began": false, "its hub was not told": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := meshtest.Plan{Lease: 10 * time.Minute}.Start(t, "attic")
			s, dir := m.Spokes["attic"], t.TempDir()
			c := counter{m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeExec, MaxRetries: 3, BackoffMS: commands.MaxBackoff.Milliseconds(),
				Argv: []string{"sh", "-c", `cd "$0"; if [ -e failed ]; then while [ ! -e go ]; do echo x >>n; sleep 0.01; done; exit; fi; while [ ! -e fail ]; do sleep 0.01; done; touch failed; exit 3`, dir}}}), dir}
			m.Await(t, c.task, commands.Running)
			m.Stop(t, "attic")
			backup := s.Backup(t)
			m.Start(t, "attic")
			m.Wait(t, m.Noop(t, "attic")) // from here on agents may start, without the hub too
			if unheard {
				s.Proxy.Cut()
			}
			require.NoError(t, os.WriteFile(filepath.Join(dir, "fail"), nil, 0o600))
			meshtest.Await(t, "its failure", func() bool { return s.Count(t, `SELECT count(*) FROM due WHERE task = $1`, c.task) == 1 })
			s.Exec(t, `UPDATE due SET at = now()`)
			moves(t, c.far)
			if !unheard {
				meshtest.Await(t, "that its hub knows", func() bool { return m.Agent(t, c.task).Attempt == 2 })
			}
			m.Stop(t, "attic")
			s.Restore(t, backup)

			m.Start(t, "attic")
			s.Proxy.Heal()

			meshtest.Await(t, "that it is taken over", func() bool {
				return s.Count(t, `SELECT count(*) FROM leases WHERE task = $1 AND attempt = 2 AND started_at IS NOT NULL`, c.task) == 1
			})
			moves(t, c.far)
			c.finish(t)
			v := m.Wait(t, c.task)
			require.Equal(t, []any{commands.Completed, 2}, []any{v.State, v.Attempt})
		})
	}
}
