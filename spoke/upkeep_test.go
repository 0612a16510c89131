package spoke_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
	"github.com/spawnmesh/spawnmesh/spoke"
)

// The shim of an agent hears of each renewal: it ends its tree by itself a few
// seconds after a lease of which it did not.
func TestAnAgentThatOutlivesTwoLeasesRunsOnce(t *testing.T) {
	t.Parallel()
	m := meshtest.Plan{Lease: 4 * time.Second}.Start(t, "attic")

	v := m.Wait(t, m.Spawn(t, "attic", "sleep", "10"))

	require.Equal(t, commands.Completed, v.State)
	require.Equal(t, 1, v.Attempt)
	m.Check(t)
}

// Directories of attempts go a week after their end, and none goes whose agent
// still runs.
func TestTheDirectoryOfALiveAgentIsKept(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	s := m.Spokes["attic"]
	runs, ended := sleeper(t, m), m.Spawn(t, "attic", "true") // in the order in which they are looked at
	m.Wait(t, ended)
	m.Stop(t, "attic")
	long := time.Now().Add(-8 * 24 * time.Hour)
	for _, id := range []string{runs, runs + "/1", ended, ended + "/1"} {
		require.NoError(t, os.Chtimes(filepath.Join(s.Dir, "agents", id), long, long))
	}

	m.Start(t, "attic")

	meshtest.Await(t, "the end of the old directory", func() bool {
		_, err := os.Stat(filepath.Join(s.Dir, "agents", ended))
		return os.IsNotExist(err)
	})
	m.AwaitLink(t, "attic")
	require.DirExists(t, filepath.Join(s.Dir, "agents", runs, "1"))
	m.Hub.Do(t, "POST", "/v1/agents/"+runs+"/kill", map[string]any{"reason": "enough", "grace_ms": 0}, nil)
	require.Equal(t, commands.Cancelled, m.Wait(t, runs).State)
	m.Check(t)
}

// A host that revokes its hub ends the hub's agents by that act, and not when it
// next renews their leases.
func TestARevocationEndsAgentsByItself(t *testing.T) {
	t.Parallel()
	m := meshtest.Plan{Lease: time.Hour}.Start(t, "attic")
	s := m.Spokes["attic"]
	sleeper(t, m)
	s.Exec(t, `CREATE FUNCTION no_renewal() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'the test says so'; END $$`)
	s.Exec(t, `CREATE TRIGGER no_renewal BEFORE UPDATE OF until ON leases FOR EACH STATEMENT EXECUTE FUNCTION no_renewal()`)

	s.Turn(t, "revoke")

	meshtest.Await(t, "the end of its agent", func() bool {
		var list []spoke.LocalAgent
		s.Do(t, "GET", "/v1/running", nil, &list)
		return len(list) == 0
	})
}
