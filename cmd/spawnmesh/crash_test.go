package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/fleet"
	"github.com/spawnmesh/spawnmesh/internal/scale"
)

// hubPoints and spokePoints are the steps between two durable actions of one
// spawn, on either side, in their order.
var (
	hubPoints = []string{
		"before ordering spawns", "after ordering spawns",
		"published messages",
		"before taking in messages", "after taking in messages", "confirmed messages",
	}
	spokePoints = []string{
		"before taking in messages", "after taking in messages",
		"before claiming tasks", "after claiming tasks",
		"starting an agent", "started an agent", "saw an agent end",
		"before recording progress", "after recording progress", "published messages",
	}
	auditPoints = []string{"after adding to the tree of the audit", "before signing a checkpoint of the audit"}
)

// A process that is killed with -9 at any of these steps, or its database, must
// leave exactly one run and one result.
func TestKillAtEveryStep(t *testing.T) {
	t.Run("of the hub", func(t *testing.T) {
		t.Parallel()
		m := startMesh(t)
		sweep(t, m, m.Hub, hubPoints)
	})
	t.Run("of the spoke", func(t *testing.T) {
		t.Parallel()
		m := startMesh(t)
		sweep(t, m, m.Spokes["attic"], spokePoints)
	})
	t.Run("of the tree of the audit", func(t *testing.T) {
		t.Parallel()
		m := startMesh(t)
		sweep(t, m, m.Hub, auditPoints)
		require.Contains(t, hand{t: t, dir: m.Hub.Dir}.do("audit", "verify"), "is whole")
	})
}

func sweep(t *testing.T, m *fleet.Mesh, victim *fleet.Process, points []string) {
	tr := newTrace(t)
	for _, point := range scale.Some(t, 2, points) {
		for _, what := range []string{"process", "postgres"} {
			t.Run(point+" kills its "+what, func(t *testing.T) {
				once := filepath.Join(t.TempDir(), "died")
				crash := "SPAWNMESH_CRASH=" + point
				if what == "postgres" {
					crash += "=" + filepath.Join(victim.Dir, "pg", "postmaster.pid")
				}
				require.NoError(t, victim.Stop(t.Context()))
				victim.Env = []string{crash, "SPAWNMESH_CRASH_ONCE=" + once}
				restart(t, victim, once)
				id := newID()
				ordered := make(chan error, 1)
				go func() { ordered <- m.Order(t.Context(), id, tr.agent(id, "0.1")) }()

				require.NoError(t, fleet.Poll(t.Context(), time.Minute, "waiting for the step "+point, func() (bool, error) {
					_, err := os.Stat(once)
					return err == nil, nil
				}))
				if what == "process" && victim.Cmd != nil {
					victim.Wait()
				}
				if victim.Cmd == nil {
					require.NoError(t, victim.Start(t.Context()))
				}

				require.NoError(t, <-ordered)
				v, err := m.Ended(t.Context(), id, time.Minute)
				require.NoError(t, err)
				require.Equal(t, commands.Completed, v.State, "%s", v.Sentence())
				starts, ends := tr.counts(t)
				require.Equal(t, 1, starts[id], "runs")
				require.Equal(t, 1, ends[id], "ends")
			})
		}
	}
	require.NoError(t, m.Settled(t.Context()))
}

// restart starts the victim. One that dies before it serves did so at the step:
// work of the round before can lead there.
func restart(t *testing.T, victim *fleet.Process, once string) {
	t.Helper()
	err := victim.Start(t.Context())
	if _, died := os.Stat(once); err != nil && died == nil {
		return
	}
	require.NoError(t, err)
}

// The marks of a directory and of its database tell a restore. Whoever is killed while they
// are changed has restored nothing.
func TestAStartThatIsKilledIsNoRestore(t *testing.T) {
	t.Parallel()
	m := startHub(t)
	for _, points := range [][]string{{"before"}, {"after"}, {"before", "before"}, {"after", "before"}} {
		require.NoError(t, m.Hub.Stop(t.Context()))
		for _, point := range points {
			once := filepath.Join(t.TempDir(), "died")
			m.Hub.Env = []string{"SPAWNMESH_CRASH=" + point + " beginning an incarnation of the instance", "SPAWNMESH_CRASH_ONCE=" + once}
			require.Error(t, m.Hub.Start(t.Context()), "it is killed")
			require.FileExists(t, once)
		}

		m.Hub.Env = nil
		require.NoError(t, m.Hub.Start(t.Context()))

		log, err := os.ReadFile(filepath.Join(m.Hub.Dir, "log"))
		require.NoError(t, err)
		require.NotContains(t, string(log), "restored from a backup", "killed %s", points)
	}
}
