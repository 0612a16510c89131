package meshtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
)

// traced are orders of agents that each write a line when they start. They wait
// for the gate before they end.
type traced struct {
	dir, gate string
	tasks     map[string]string // id to the name of its trace
}

func newTraced(t *testing.T) *traced {
	dir := t.TempDir()
	return &traced{dir, filepath.Join(dir, "gate"), map[string]string{}}
}

func (r *traced) order(t *testing.T, m *Mesh, gate string) string {
	t.Helper()
	trace := filepath.Join(r.dir, fmt.Sprint("trace", len(r.tasks)))
	task := m.Spawn(t, "attic", "sh", "-c", `echo ran >>"$0"; until [ -e "$1" ]; do sleep 0.02; done`, trace, gate)
	r.tasks[task] = trace
	return task
}

func (r *traced) open(t *testing.T) { require.NoError(t, os.WriteFile(r.gate, nil, 0o600)) }

// runs returns how often an order has run.
func (r *traced) runs(t *testing.T, task string) int {
	t.Helper()
	raw, err := os.ReadFile(r.tasks[task])
	if !os.IsNotExist(err) {
		require.NoError(t, err)
	}
	return strings.Count(string(raw), "ran")
}

// agreeAgain waits until both sides of a connection relay and say so.
func agreeAgain(t *testing.T, m *Mesh, name string) {
	t.Helper()
	m.AwaitLink(t, name)
	Await(t, "that the histories agree", func() bool {
		v := m.View(t, name)
		return v.Differs == "" && v.Says.Agrees && v.Says.Differs == ""
	})
}

// points are where one spawn can be when a backup is made. Each brings it there.
var points = map[string]func(t *testing.T, m *Mesh, r *traced) string{
	"it was ordered": func(t *testing.T, m *Mesh, r *traced) string {
		m.Spokes["attic"].Proxy.Cut()
		return r.order(t, m, r.gate)
	},
	"it was started": func(t *testing.T, m *Mesh, r *traced) string {
		task := r.order(t, m, r.gate)
		m.Await(t, task, commands.Running)
		return task
	},
	"it had ended unheard": func(t *testing.T, m *Mesh, r *traced) string {
		task := r.order(t, m, r.gate)
		m.Await(t, task, commands.Running)
		m.Spokes["attic"].Proxy.Cut()
		r.open(t)
		ended(t, m.Spokes["attic"], task)
		return task
	},
	"it was confirmed": func(t *testing.T, m *Mesh, r *traced) string {
		r.open(t)
		task := r.order(t, m, r.gate)
		m.Wait(t, task)
		return task
	},
}

// A hub that was restored from an older backup links up by itself. What it knows
// of ends, with the outcome that it had, and runs once; so do orders that were
// given with used numbers before the first link.
func TestAHubIsRestored(t *testing.T) {
	t.Parallel()
	for point, bring := range points {
		for _, since := range []int{0, 1, 50} {
			t.Run(fmt.Sprintf("to when %s, %d orders ago", point, since), func(t *testing.T) {
				t.Parallel()
				m, r := Start(t, "attic"), newTraced(t)
				known := []string{bring(t, m, r)}
				m.Stop(t, "hub")
				backup := m.Hub.Backup(t)
				m.Start(t, "hub")
				m.Spokes["attic"].Proxy.Heal()
				r.open(t)
				for range since {
					r.order(t, m, r.gate)
				}
				for task := range r.tasks {
					m.Wait(t, task)
				}

				m.Spokes["attic"].Proxy.Cut()
				m.Stop(t, "hub")
				m.Hub.Restore(t, backup)
				m.Start(t, "hub")
				for range 3 {
					known = append(known, r.order(t, m, r.gate))
				}
				m.Spokes["attic"].Proxy.Heal()

				agreeAgain(t, m, "attic")
				for _, task := range known {
					require.Equal(t, commands.Completed, m.Wait(t, task).State)
				}
				m.Check(t)
				for task := range r.tasks {
					require.Equal(t, 1, r.runs(t, task))
				}
				const resyncs = `SELECT count(*) FROM audit WHERE code = 'RESYNC' AND action = 'connection.resync'`
				require.Equal(t, since > 0, m.Hub.Count(t, `SELECT count(*) FROM sequences WHERE base > 0`) > 0, "the numbers go on after a gap")
				require.Equal(t, since > 0, m.Hub.Count(t, resyncs+` AND actor = 'self' AND why LIKE '%numbers go on after%'`) == 1, "the hub says so")
				require.Equal(t, since > 0, m.Spokes["attic"].Count(t, resyncs+` AND actor = 'peer'`) == 1, "the spoke says so")
				require.Zero(t, m.Hub.Count(t, `SELECT count(*) FROM connections WHERE state <> 'active'`))
			})
		}
	}
}
