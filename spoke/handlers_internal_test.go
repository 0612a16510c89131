package spoke

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
	"github.com/spawnmesh/spawnmesh/store"
)

// An order that this host cannot judge comes again. One that is known is answered all the same: it was allowed in its time.
func TestAKnownOrderWaitsForNoFaultOfTheHost(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	s, _ := liveRun()
	s.DB, s.backlog = p.Spoke.DB, Backlog(p.Spoke.DB, t.TempDir())
	rules, err := policy.Parse([]byte("version: 1\nruntimes: [exec]\ncommands: [\"*\"]\n"))
	require.NoError(t, err)
	for task, later := range map[string]bool{askedFor(t, p, s.backlog): false, storetest.NewID(): true} {
		spawn := &commands.Spawn{Task: task, Runtime: commands.RuntimeExec, Argv: []string{"true"}}
		m := &store.Incoming{Conn: p.Spoke.Conn.ID, Body: spawn}
		named := &policy.Named{Fault: &supervisor.StartError{Reason: supervisor.NoResources, Text: "too many open files"}}

		require.Nil(t, s.judgeNamed(t.Context(), m, rules, named))

		require.Equal(t, later, m.Later != nil)
	}
}
