package spoke_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
	"github.com/spawnmesh/spawnmesh/internal/node"
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

// Directories of attempts go a week after their end. However old, none goes whose
// agent still runs, or whose output the hub does not have.
func TestDirectoriesThatAreNeededAreKept(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	s, gate := m.Spokes["attic"], filepath.Join(t.TempDir(), "open")
	dir := func(id string) string { return filepath.Join(s.Dir, "agents", id) }
	runs, unsent := sleeper(t, m), m.Spawn(t, "attic", gated(gate, "echo hi")...)
	m.Await(t, unsent, commands.Running)
	bare := m.Spawn(t, "attic", "true")
	m.Wait(t, bare)
	sent := m.Spawn(t, "attic", "echo", "hi") // the last that is looked at
	m.Wait(t, sent)
	require.Equal(t, "hi\n", m.Stdout(t, sent, true))
	outputs := func() int { return s.Count(t, `SELECT count(*) FROM outputs WHERE task IN ($1, $2)`, sent, bare) }
	meshtest.Await(t, "that it is sent", func() bool { return outputs() == 0 })
	require.NoError(t, os.Remove(filepath.Join(dir(bare), "1", "exit.json")), "as if its agent had kept it from being written")
	s.Proxy.Cut()
	require.NoError(t, os.WriteFile(gate, nil, 0o644))
	meshtest.Await(t, "the end of the agent", func() bool { return s.Count(t, `SELECT count(*) FROM leases`) == 1 })
	m.Stop(t, "attic")
	long := time.Now().Add(-30 * 24 * time.Hour)
	for _, id := range []string{runs, unsent, bare, sent} {
		require.NoError(t, errors.Join(os.Chtimes(dir(id), long, long), os.Chtimes(filepath.Join(dir(id), "1"), long, long)))
	}

	m.Start(t, "attic")

	meshtest.Await(t, "the end of what was sent", func() bool {
		_, err := os.Stat(dir(sent))
		return os.IsNotExist(err)
	})
	require.NoDirExists(t, dir(bare))
	require.DirExists(t, filepath.Join(dir(runs), "1"))
	require.DirExists(t, filepath.Join(dir(unsent), "1"))
	s.Proxy.Heal()
	m.Wait(t, unsent)
	require.Equal(t, "hi\n", m.Stdout(t, unsent, true))
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
		var now node.Instance
		s.Do(t, "GET", "/v1/instance", nil, &now)
		return now.Running == 0
	})
}

// Old rows go, also while the spoke cannot read which output is unsent.
func TestASpokeRemovesOldRows(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	s := m.Spokes["attic"]
	m.Stop(t, "attic")
	s.Exec(t, `ALTER TABLE outputs RENAME TO not_outputs`)
	s.Exec(t, `INSERT INTO last_commits (session, mark, at) VALUES ('long ago', 1, now() - interval '60 days')`)
	s.Exec(t, `DELETE FROM retention WHERE kind = ''`) // the turn that its first start has taken

	m.Start(t, "attic")

	meshtest.Await(t, "the end of an old row", func() bool {
		return s.Count(t, `SELECT count(*) FROM last_commits WHERE session = 'long ago'`) == 0
	})
	s.Exec(t, `ALTER TABLE not_outputs RENAME TO outputs`)
	m.Check(t)
}
