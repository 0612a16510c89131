package hub_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
	"github.com/spawnmesh/spawnmesh/signing"
)

// A spoke whose heartbeats have the right time and whose reports have not is named by its clock: its database has another one. When a report
// is taken it is named no more.
func TestMessagesOfAClockThatIsAheadAreNamed(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t)
	a := m.Attack(t, "clocky")
	asked := a.Order(t, m)
	report := func(ahead int64) {
		a.Send(t, commands.QueueEvents, a.Seal(t, &commands.Accepted{Task: asked.Task, State: commands.Queued}, asked.Re, func(h *signing.Header) { h.Iat, h.Exp = h.Iat+ahead, h.Exp+ahead }).Envelope)
		a.Beat(t, beatOf(t, a, 0))
	}
	clock := func() string { return reasonsOf(t, m.Hub.Instance, "clocky")[commands.CauseClock] }

	report(200_000)

	meshtest.Await(t, "the reason", func() bool { return clock() != "" })
	require.Contains(t, clock(), "what it orders and reports is refused here (TIME_FUTURE): issued 3m")
	require.Contains(t, m.Hub.Health(t, "heartbeats of clocky").Problem, "TIME_FUTURE")
	var why struct{ Reasons []commands.WhyReason }
	m.Hub.Do(t, "GET", "/api/v1/tasks/"+asked.Task+"/why", nil, &why)
	require.Equal(t, commands.CauseClock, why.Reasons[0].Code)

	report(0)

	meshtest.Await(t, "no reason", func() bool { return clock() == "" })
}

// A database whose clock differs from that of its instance is said by its checks and once in the log.
func TestAClockOfTheDatabaseThatDiffers(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t)
	const check = "clock of the database"
	require.Empty(t, m.Hub.Health(t, check).Problem)
	m.Stop(t, "hub")
	m.Hub.Exec(t, `CREATE SCHEMA later; GRANT USAGE ON SCHEMA later TO PUBLIC`)
	m.Hub.Exec(t, `CREATE FUNCTION later.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $$ SELECT pg_catalog.clock_timestamp() + interval '200 seconds' $$`)
	m.Hub.Exec(t, `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET search_path = later, public, pg_catalog', current_database()); END $$`)
	m.Start(t, "hub")

	require.Regexp(t, `^it is 3m(19|20)s ahead of that of this instance`, m.Hub.Health(t, check).Problem)
	meshtest.Await(t, "the log", func() bool {
		return strings.Contains(m.Hub.Log.String(), "the clock of the database differs from that of this instance")
	})
}
