package spoke_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
)

// unrecorded keeps the database of a spoke from recording a start until allow is called, and counts how often one was tried.
func unrecorded(t *testing.T, s *meshtest.Spoke) (tries func() int, allow func()) {
	t.Helper()
	s.Exec(t, `CREATE SEQUENCE start_tries MINVALUE 0; CREATE TABLE starts_allowed ()`)
	s.Exec(t, `CREATE FUNCTION no_start() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$ BEGIN
		IF EXISTS (SELECT FROM starts_allowed) THEN RETURN NEW; END IF;
		PERFORM nextval('start_tries');
		RAISE EXCEPTION 'the test says so'; END $$`)
	s.Exec(t, `CREATE TRIGGER no_start BEFORE INSERT ON sessions FOR EACH ROW EXECUTE FUNCTION no_start()`)
	tries = func() int {
		return s.Count(t, `SELECT CASE WHEN is_called THEN last_value + 1 ELSE 0 END FROM start_tries`)
	}
	return tries, func() { s.Exec(t, `INSERT INTO starts_allowed DEFAULT VALUES`) }
}

// A start whose record fails is recorded while its agent runs.
func TestAStartIsRecordedAgain(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	tries, allow := unrecorded(t, m.Spokes["attic"])
	gate := filepath.Join(t.TempDir(), "open")
	id := m.Spawn(t, "attic", gated(gate, "true")...)
	meshtest.Await(t, "a second try", func() bool { return tries() >= 2 })

	allowed := time.Now()

	allow()

	m.Await(t, id, commands.Running)
	require.Zero(t, m.Spokes["attic"].Count(t, `SELECT count(*) FROM leases WHERE started_at >= $1`, allowed), "when it was executed")
	require.NoError(t, os.WriteFile(gate, nil, 0o644))
	require.Equal(t, commands.Completed, m.Wait(t, id).State)
	m.Check(t)
}

// A start that could not be recorded before its agent ended is recorded with the end: what began is told as begun, and both with their own
// times, however late.
func TestAStartIsRecordedWithTheEnd(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	s := m.Spokes["attic"]
	tries, allow := unrecorded(t, s)
	over := filepath.Join(t.TempDir(), "over")
	id := m.Spawn(t, "attic", "sh", "-c", "touch "+over)
	meshtest.Await(t, "the end of the agent", func() bool { _, err := os.Stat(over); return err == nil })
	before := tries()
	meshtest.Await(t, "the end to be tried with the start", func() bool { return tries() > before+3 || s.Count(t, `SELECT count(*) FROM leases`) == 0 })
	allowed := time.Now()

	allow()

	v := m.Wait(t, id)
	require.Equal(t, commands.Completed, v.State)
	require.NotNil(t, v.StartedAt)
	require.Less(t, *v.StartedAt, allowed, "when it was executed, and not when that was recorded")
	require.Less(t, *v.EndedAt, allowed, "when it ended")
	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM sessions WHERE state = 'retired'`))
	m.Check(t)
}

// So it is where the agent was killed, which gives the end another fence than the start was tried with.
func TestTheStartOfAKilledAgentIsRecordedWithTheEnd(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	s := m.Spokes["attic"]
	tries, allow := unrecorded(t, s)
	id := m.Spawn(t, "attic", "sleep", "600")
	meshtest.Await(t, "the start to be tried", func() bool { return tries() > 0 })
	kill(t, m, id, 0)
	meshtest.Await(t, "the kill", func() bool { return s.Count(t, `SELECT count(*) FROM kills`) == 1 })
	before := tries()
	meshtest.Await(t, "the end to be tried with the start", func() bool { return tries() > before || s.Count(t, `SELECT count(*) FROM leases`) == 0 })

	allow()

	v := m.Wait(t, id)
	require.Equal(t, commands.Cancelled, v.State)
	require.NotNil(t, v.StartedAt)
	m.Check(t)
}
