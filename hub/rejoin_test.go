package hub_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
	"github.com/spawnmesh/spawnmesh/store"
)

// unreported is how many reports of the old connection wait when it ends.
const unreported = 50

// What an ended connection left behind belongs to it: a host that joins again
// sends none of it over the new connection, so that its hub finds nothing to
// refuse, and both go on as if they had never met.
func TestARejoinSendsNothingOfTheConnectionBefore(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*testing.T, *meshtest.Spoke){
		"that its host ended":                     func(t *testing.T, s *meshtest.Spoke) { s.Turn(t, "revoke") },
		"that ended while its agents ran on here": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := meshtest.Plan{Slots: 3}.Start(t, "attic")
			s := m.Spokes["attic"]
			for range 2 {
				talker := m.Spawn(t, "attic", "sh", "-c", "while :; do echo still here; sleep 0.02; done")
				m.Await(t, talker, commands.Running)
			}
			leaveUnreported(t, m)
			old := s.Conn
			m.Turn(t, "attic", "revoke")
			if end != nil {
				end(t, s)
			}
			m.Stop(t, "attic")
			s.Exec(t, `UPDATE connections SET state = 'revoked'`)
			s.Proxy.Heal()

			joined, err := s.JoinWith(t, m.Token(t, "attic", s.Proxy))
			require.NoError(t, err)
			s.Conn = joined.Connection.ID
			require.NotEqual(t, old, s.Conn)
			before := m.Hub.AuditEnd(t)
			m.Start(t, "attic")
			m.AwaitLink(t, "attic")
			done := m.Noop(t, "attic")

			require.Equal(t, commands.Completed, m.Wait(t, done).State)
			m.Stop(t, "attic") // what waits to be sent is sent at every start
			m.Start(t, "attic")
			m.AwaitLink(t, "attic")
			talks := m.Spawn(t, "attic", "echo", "new")
			require.Equal(t, commands.Completed, m.Wait(t, talks).State)
			require.Equal(t, "new\n", m.Stdout(t, talks, true), "its output, past what was left of the others'")
			require.Empty(t, m.Hub.Audit(t, before), "nothing was refused, nobody was suspended")
			v := m.View(t, "attic")
			require.Equal(t, s.Conn, v.ID)
			require.Equal(t, store.Active, v.State)
			require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM connections WHERE id = $1 AND state = 'active'`, s.Conn))
		})
	}
}

// leaveUnreported has tasks end at the spoke while its hub is out of reach.
func leaveUnreported(t *testing.T, m *meshtest.Mesh) {
	t.Helper()
	s := m.Spokes["attic"]
	gate := filepath.Join(t.TempDir(), "open")
	blocker := m.Spawn(t, "attic", "sh", "-c", "while [ ! -e "+gate+" ]; do sleep 0.05; done; seq 100000")
	m.Await(t, blocker, commands.Running)
	var queued []string
	for range unreported {
		queued = append(queued, m.Noop(t, "attic"))
	}
	meshtest.Await(t, "that the spoke has accepted them", func() bool { return m.Agent(t, queued[unreported-1]).AcceptedAt != nil })
	s.Proxy.Cut()

	require.NoError(t, os.WriteFile(gate, nil, 0o644))

	meshtest.Await(t, "reports that wait", func() bool {
		return s.Count(t, `SELECT count(*) FROM open_outbox WHERE conn = $1 AND kind = 'agent.result'`, s.Conn) >= unreported
	})
}
