package meshtest

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/pgtest"
)

// A message that has come and was not taken in yet is part of what its sender has said. A
// side that was restored is told of it, too: else the orders that a hub does not know any
// more would not be taken over, and a spoke would run again what has run.
func TestWhatIsOnItsWayIsRecalledToo(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		takes string // the side with which it waits
		d     disaster
		order func(*testing.T, *Mesh, *traced) (comes func())
	}{
		"an order of a hub": {"attic", disaster{sides: []string{"hub"}}, func(t *testing.T, m *Mesh, r *traced) func() {
			r.open(t)
			return func() { r.order(t, m, r.gate) }
		}},
		"the end of an agent": {"hub", disaster{sides: []string{"attic"}, gone: true}, func(t *testing.T, m *Mesh, r *traced) func() {
			task := points["it was queued"](t, m, r)
			return func() { r.open(t); ended(t, m.Spokes["attic"], task) }
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, r := Plan{Slots: 2}.Start(t, "attic"), newTraced(t)
			comes := c.order(t, m, r)
			backups := c.d.backUp(t, m)
			m.AwaitLink(t, "attic")
			release := m.instance(t, c.takes).holdInbox(t)
			comes()
			Await(t, "that something waits to be taken in", func() bool { return m.waits(t, c.takes) })
			c.d.restore(t, m, backups)
			m.AwaitLink(t, "attic")

			m.heartbeats(t, "attic", 3)
			release()

			agreeAgain(t, m, "attic")
			for task := range r.tasks {
				Await(t, "that the hub knows order "+task, func() bool { return m.Hub.Count(t, `SELECT count(*) FROM mirrors WHERE task = $1`, task) == 1 })
				require.Equal(t, commands.Completed, m.Wait(t, task).State)
				require.Equal(t, 1, r.runs(t, task))
			}
		})
	}
}

// holdInbox keeps an instance from taking anything in, until release.
func (i *Instance) holdInbox(t *testing.T) (release func()) {
	t.Helper()
	return i.holdTable(t, "inbox", "SHARE")
}

// holdTable holds a table of an instance, until release.
func (i *Instance) holdTable(t *testing.T, table, mode string) (release func()) {
	t.Helper()
	hold, err := pgx.Connect(t.Context(), pgtest.Admin(i.url))
	require.NoError(t, err)
	t.Cleanup(func() { _ = hold.Close(t.Context()) })
	_, err = hold.Exec(t.Context(), `BEGIN; LOCK TABLE `+table+` IN `+mode+` MODE`)
	require.NoError(t, err)
	return func() { require.NoError(t, hold.Close(t.Context())) }
}

// waits reports whether side has something to take in.
func (m *Mesh) waits(t *testing.T, side string) bool {
	return m.instance(t, side).Count(t, `SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE NOT l.granted AND a.datname = current_database()`) > 0
}

// heartbeats waits until the hub has heard n more of a spoke.
func (m *Mesh) heartbeats(t *testing.T, name string, n int) {
	t.Helper()
	var last time.Time
	for n++; n > 0; n-- {
		Await(t, "a heartbeat", func() bool {
			at := m.View(t, name).LastSeen
			if at == nil || at.Equal(last) {
				return false
			}
			last = *at
			return true
		})
	}
}

// Over a line that is slow both ways a heartbeat takes longer to answer what a restored
// hub asks, and says it all the same.
func TestARestoredHubGoesOnOverASlowLine(t *testing.T) {
	t.Parallel()
	m, r := Start(t, "attic"), newTraced(t)
	r.open(t)
	backups := disaster{sides: []string{"hub"}}.backUp(t, m)
	m.AwaitLink(t, "attic")
	task := r.order(t, m, r.gate)
	m.Wait(t, task)
	m.Spokes["attic"].Proxy.Slow(300*time.Millisecond, 0)

	disaster{sides: []string{"hub"}}.restore(t, m, backups)

	agreeAgain(t, m, "attic")
	require.Equal(t, commands.Completed, m.Wait(t, task).State)
}
