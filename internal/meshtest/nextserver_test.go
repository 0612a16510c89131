package meshtest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
)

// A hub's message server keeps what waits in memory. What waited there when the hub ended is
// sent to its next one when the link is up, by both sides, and not after the time in which a
// confirmation may come.
func TestWhatWaitsInAServerThatEndsIsSentToTheNext(t *testing.T) {
	t.Parallel()
	m := Start(t, "attic")
	attic := m.Spokes["attic"]
	release := m.Hub.holdInbox(t)
	first := m.Noop(t, "attic")
	Await(t, "the reports, which the hub cannot take in", func() bool { return m.waits(t, "hub") })
	Await(t, "the end of the agent", func() bool {
		return attic.Count(t, `SELECT count(*) FROM outbox WHERE task = $1 AND kind = 'agent.result'`, first) == 1
	})
	attic.Turn(t, "suspend")
	second := m.Noop(t, "attic") // waits in the hub's server

	m.Stop(t, "hub")
	attic.Exec(t, `UPDATE outbox SET created_at = now() + interval '1 hour'`) // it is not sent for its age
	release()
	m.Start(t, "hub")
	m.AwaitLink(t, "attic")
	attic.Turn(t, "resume")

	for _, task := range []string{first, second} {
		require.Equal(t, commands.Completed, m.Wait(t, task).State)
		require.Equal(t, 1, attic.Count(t, `SELECT count(*) FROM inbox WHERE task = $1 AND kind = 'agent.spawn'`, task))
	}
}
