package spoke_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
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

// Directories of attempts go a week after their end, and checkpoints with their tasks. However old, none goes whose
// agent still runs, or whose output the hub does not have.
func TestDirectoriesThatAreNeededAreKept(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	s, gate := m.Spokes["attic"], filepath.Join(t.TempDir(), "open")
	dir := func(id string) string { return filepath.Join(s.Dir, "agents", id) }
	checkpoints := func(id string) string { return filepath.Join(s.Dir, "checkpoints", id) }
	runs, unsent := sleeper(t, m), m.Spawn(t, "attic", gated(gate, "echo hi")...)
	m.Await(t, unsent, commands.Running)
	bare, recent := m.Spawn(t, "attic", "true"), m.Spawn(t, "attic", "true")
	m.Wait(t, bare)
	m.Wait(t, recent)
	sent := m.Spawn(t, "attic", "echo", "hi") // the last that is looked at
	m.Wait(t, sent)
	require.Equal(t, "hi\n", m.Stdout(t, sent, true))
	outputs := func() int { return s.Count(t, `SELECT count(*) FROM outputs WHERE task IN ($1, $2)`, sent, bare) }
	meshtest.Await(t, "that it is sent", func() bool { return outputs() == 0 })
	requireShimGone(t, filepath.Join(dir(bare), "1", "control"))
	require.NoError(t, os.Remove(filepath.Join(dir(bare), "1", "control", "exit.json")), "as if its agent had kept it from being written")
	gone := uuid.NewString() // a task that was removed
	require.NoError(t, doorOf(s, runs, 1).Send(t.Context(), "PUT", "/v1/checkpoint", []byte("so far"), nil))
	require.NoError(t, os.Mkdir(checkpoints(gone), 0o700))
	s.Proxy.Cut()
	require.NoError(t, os.WriteFile(gate, nil, 0o644))
	meshtest.Await(t, "the end of the agent", func() bool { return s.Count(t, `SELECT count(*) FROM leases`) == 1 })
	m.Stop(t, "attic")
	for _, id := range []string{unsent, recent, sent} {
		requireShimGone(t, filepath.Join(dir(id), "1", "control")) // its last acts make the directory young
	}
	now := time.Now()
	for id, days := range map[string]int{runs: 30, unsent: 30, bare: 30, recent: 6, sent: 30} {
		then := now.AddDate(0, 0, -days)
		require.NoError(t, errors.Join(os.Chtimes(dir(id), then, then), os.Chtimes(filepath.Join(dir(id), "1", "control"), then, then)))
	}

	for _, id := range []string{runs, gone} {
		then := now.AddDate(0, 0, -30)
		require.NoError(t, os.Chtimes(checkpoints(id), then, then))
	}

	m.Start(t, "attic")

	meshtest.Await(t, "the end of what was sent", func() bool {
		_, err := os.Stat(dir(sent))
		return os.IsNotExist(err)
	})
	require.Eventually(t, func() bool {
		_, err := os.Stat(dir(bare))
		return os.IsNotExist(err)
	}, 2*meshtest.Patience, 50*time.Millisecond, "it is tried again after a minute, where a busy host was not looked through within 2 s")
	require.DirExists(t, filepath.Join(dir(runs), "1"))
	require.DirExists(t, filepath.Join(dir(unsent), "1"))
	require.DirExists(t, filepath.Join(dir(recent), "1"), "it is kept for 7 days")
	meshtest.Await(t, "the end of a checkpoint of no task", func() bool {
		_, err := os.Stat(checkpoints(gone))
		return os.IsNotExist(err)
	})
	require.DirExists(t, checkpoints(runs))
	s.Proxy.Heal()
	m.Wait(t, unsent)
	require.Equal(t, "hi\n", m.Stdout(t, unsent, true))
	m.Hub.Do(t, "POST", "/api/v1/tasks/"+runs+"/kill", map[string]any{"reason": "enough", "grace_ms": 0}, nil)
	require.Equal(t, commands.Cancelled, m.Wait(t, runs).State)
	m.Check(t)
}

// requireShimGone waits until the shim of an attempt has let go of its directory: it
// tells the end of its agent before it writes that down.
func requireShimGone(t *testing.T, dir string) {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, "lock"))
	require.NoError(t, err)
	defer f.Close()
	meshtest.Await(t, "the end of the shim in "+dir, func() bool { return unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) == nil })
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
		var now api.Instance
		s.Do(t, "GET", "/api/v1/instance", nil, &now)
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

// An instance says when it has last moved what was due, and that goes on with what is written.
func TestTheLastSweepIsTold(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	swept := func() time.Time {
		var v spoke.Description
		m.Spokes["attic"].Do(t, "GET", "/api/v1/instance", nil, &v)
		return v.Swept
	}
	meshtest.Await(t, "the first one", func() bool { return !swept().IsZero() })
	before := swept()
	require.WithinDuration(t, time.Now(), before, time.Hour)

	m.Wait(t, m.Noop(t, "attic"))

	meshtest.Await(t, "the next one", func() bool { return swept().After(before) })
}
