package meshtest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// A hub that keeps no more of a spoke's messages loses none: they wait at the spoke, which is
// told, and are taken when there is room again.
func TestAFullHubLosesNothing(t *testing.T) {
	t.Parallel()
	m := Start(t, "attic")
	first := m.Noop(t, "attic")
	require.Equal(t, commands.Completed, m.Wait(t, first).State)
	m.Hub.Bound(store.InboxBound{Rows: 3})
	var tasks []string
	for range 25 {
		tasks = append(tasks, m.Noop(t, "attic"))
	}
	Await(t, "the word that the hub is full", func() bool {
		return m.Hub.count(t, `SELECT count(*) FROM audit WHERE action = 'connection.full' AND code = 'FULL'`) == 1 &&
			m.Spokes["attic"].count(t, `SELECT count(*) FROM heartbeats WHERE body->'connection'->>'full' = 'true'`) == 1
	})
	require.LessOrEqual(t, m.Hub.count(t, `SELECT count(*) FROM inbox`), 3)

	m.Hub.Bound(store.InboxBound{})

	for _, id := range tasks {
		require.Equal(t, commands.Completed, m.Wait(t, id).State, id)
	}
	Await(t, "the word that there is room", func() bool {
		return m.Hub.count(t, `SELECT count(*) FROM audit WHERE action = 'connection.room'`) == 1 &&
			m.Spokes["attic"].count(t, `SELECT count(*) FROM heartbeats WHERE body->'connection' ? 'full'`) == 0
	})
	require.Equal(t, 26, m.Spokes["attic"].count(t, `SELECT count(*) FROM inbox WHERE kind = 'agent.spawn'`), "each was stored once")
}

// A restart ends what it is full of no more than anything else: it is still said, and its end is
// said by the process that has room.
func TestAFullHubIsFullAfterARestart(t *testing.T) {
	t.Parallel()
	m := Start(t, "attic")
	m.Hub.Bound(store.InboxBound{Rows: 1})
	task := m.Noop(t, "attic")
	Await(t, "a full inbox", func() bool { return m.Hub.count(t, `SELECT count(*) FROM sequences WHERE full_since IS NOT NULL`) == 1 })

	m.Stop(t, "hub")
	m.Start(t, "hub")

	require.Equal(t, commands.Completed, m.Wait(t, task).State)
	Await(t, "the word that there is room", func() bool {
		return m.Hub.count(t, `SELECT count(*) FROM audit WHERE action = 'connection.room' AND object = 'attic'`) == 1
	})
	require.Zero(t, m.Hub.count(t, `SELECT count(*) FROM sequences WHERE full_since IS NOT NULL`))
}
