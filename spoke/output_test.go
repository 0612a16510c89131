package spoke_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
)

// Output that waits for the link waits for the next process of its spoke, too:
// that one has its connections a moment after it looks at what waits.
func TestOutputWaitsForTheLinkAndForARestart(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	s, dir := m.Spokes["attic"], t.TempDir()
	write, end := filepath.Join(dir, "write"), filepath.Join(dir, "end")
	wait := func(gate string) string { return "while [ ! -e " + gate + " ]; do sleep 0.05; done; " }
	id := m.Spawn(t, "attic", "sh", "-c", wait(write)+"echo waited; "+wait(end)+"echo ended")
	m.Await(t, id, commands.Running)
	s.Proxy.Cut()
	require.NoError(t, os.WriteFile(write, nil, 0o644))
	meshtest.Await(t, "output that waits", func() bool { return s.Count(t, `SELECT count(*) FROM outputs`) == 1 })

	m.Stop(t, "attic")
	m.Start(t, "attic")
	m.Stop(t, "attic")
	s.Proxy.Heal()
	m.Start(t, "attic")
	require.NoError(t, os.WriteFile(end, nil, 0o644))

	require.Equal(t, commands.Completed, m.Wait(t, id).State)
	require.Equal(t, "waited\nended\n", m.Stdout(t, id, true))
	meshtest.Await(t, "the hub's word that it has all", func() bool { return s.Count(t, `SELECT count(*) FROM outputs`) == 0 })
}
