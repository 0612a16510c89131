package spoke_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
)

// What the host of a spoke has said since the backup that it is restored from stays said: an agent that it let go on is not stopped by
// the old word of its hub, and a question that it has answered is not open again.
func TestWhatAHostSaidSinceTheBackupStays(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	s := m.Spokes["attic"]
	pausing, _, far := counting(t, m, commands.Spawn{})
	asking := waiting(t, m)
	q := inquire(t, doorOf(s, asking, 1), allow)
	seen(t, m.Hub.Instance, q.ID, is(commands.QuestionOpen))
	m.Stop(t, "attic")
	backup := s.Backup(t)
	m.Start(t, "attic")
	say(t, m.Hub.Instance, pausing, "pause")
	m.Await(t, pausing, commands.Paused)
	say(t, s.Instance, pausing, "resume")
	m.Await(t, pausing, commands.Running)
	s.Do(t, "POST", "/api/v1/questions/"+q.ID+"/answer", api.NewAnswer{Answer: "allow"}, nil)
	seen(t, m.Hub.Instance, q.ID, is(commands.QuestionAnswered))
	m.Await(t, asking, commands.Running)
	m.Stop(t, "attic")
	s.Restore(t, backup)

	m.Start(t, "attic")

	seen(t, s.Instance, q.ID, is(commands.QuestionWithdrawn))
	meshtest.Await(t, "the old pause, once more", func() bool { return s.Count(t, `SELECT count(*) FROM inbox WHERE kind = 'agent.pause'`) == 1 })
	require.Zero(t, s.Count(t, `SELECT count(*) FROM leases WHERE paused OR asking`))
	moves(t, far)
	require.ErrorContains(t, s.Ask(t, "POST", "/api/v1/questions/"+q.ID+"/answer", api.NewAnswer{Answer: "deny"}, nil), "its agent went on after the backup")
	require.Equal(t, "allow", seen(t, m.Hub.Instance, q.ID, is(commands.QuestionAnswered)).Answer)
	for _, task := range []string{pausing, asking} {
		require.Equal(t, commands.Running, m.Agent(t, task).State)
	}
}
