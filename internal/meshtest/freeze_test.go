package meshtest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
)

// waiting starts an agent that has the only slot of attic, and orders one that waits behind it there.
func waiting(t *testing.T, p Plan) (m *Mesh, open func(), waits string) {
	t.Helper()
	p.Slots = 1
	m = p.Start(t, "attic")
	_, open = gated(t, m)
	waits = m.Spawn(t, "attic", "true")
	Await(t, "that attic has the order", func() bool { return m.Agent(t, waits).AcceptedAt != nil })
	return m, open, waits
}

// never checks for a while that an agent is not started.
func (m *Mesh) never(t *testing.T, task string) {
	t.Helper()
	require.Never(t, func() bool { return m.Spokes["attic"].Count(t, `SELECT attempt FROM tasks WHERE id = $1`, task) > 0 }, 700*time.Millisecond, 50*time.Millisecond)
}

func (m *Mesh) freezes(t *testing.T, verb, scope, target string) {
	t.Helper()
	m.Hub.Do(t, "POST", "/api/v1/workspaces/main/freezes"+verb, map[string]string{"scope": scope, "target": target, "reason": "bad deploy"}, nil)
}

// What is frozen while the link is down is frozen at the spoke before it starts anything behind it.
func TestAFreezeReachesASpokeThatWasCutOff(t *testing.T) {
	t.Parallel()
	for scope, target := range map[string]string{"instance": "", "connection": "attic"} {
		t.Run(scope, func(t *testing.T) {
			t.Parallel()
			m, open, waits := waiting(t, Plan{})
			s := m.Spokes["attic"]
			s.Proxy.Cut()
			m.freezes(t, "", scope, target)
			s.Proxy.Heal()
			Await(t, "the freeze", func() bool { return s.Count(t, `SELECT count(*) FROM latches WHERE frozen`) == 1 })
			open()

			m.never(t, waits)
			require.Contains(t, s.Log.String(), "the hub has frozen its agents")
			v := m.View(t, "attic")
			require.NotNil(t, v.Frozen)
			require.Equal(t, "bad deploy", v.Frozen.Reason)
			for _, r := range []hub.SpawnRequest{{Spoke: "attic"}, {Any: true}} {
				r.Spawn = commands.Spawn{Runtime: commands.RuntimeNoop}
				err := m.Hub.Ask(t, "POST", "/api/v1/tasks", r.Revealed(), nil)
				require.Equal(t, commands.FrozenThere, commands.CodeOf(err), "%v", err)
				require.ErrorContains(t, err, "bad deploy")
			}

			m.freezes(t, "/lift", scope, target)

			require.Equal(t, commands.Completed, m.Wait(t, waits).State, "the hub calls for a heartbeat, so this is soon")
			require.Equal(t, commands.Completed, m.Wait(t, m.Noop(t, "attic")).State)
			m.Check(t)
		})
	}
}

// A kill from while the link was down is taken before anything is started behind it, however long it takes.
func TestAKillComesBeforeTheFirstStartAfterTheLink(t *testing.T) {
	t.Parallel()
	m, open, waits := waiting(t, Plan{})
	s := m.Spokes["attic"]
	s.Proxy.Cut()
	m.Hub.Do(t, "POST", "/api/v1/tasks/"+waits+"/kill", map[string]string{"reason": "not needed"}, nil)
	release := s.holdInbox(t)
	s.Proxy.Heal()
	m.AwaitLink(t, "attic")
	open()
	m.never(t, waits)

	release()

	v := m.Wait(t, waits)
	require.Equal(t, commands.Cancelled, v.State)
	require.Zero(t, v.Attempt)
	require.Equal(t, commands.Completed, m.Wait(t, m.Noop(t, "attic")).State)
	m.Check(t)
}

// A hub whose control does not come holds up what it has ordered for a while only.
func TestAControlThatDoesNotComeIsNotWaitedForForEver(t *testing.T) {
	t.Parallel()
	m, open, waits := waiting(t, Plan{HoldFor: time.Second})
	s := m.Spokes["attic"]
	s.Proxy.Cut()
	m.Hub.Do(t, "POST", "/api/v1/tasks/"+waits+"/kill", map[string]string{"reason": "not needed"}, nil)
	release := s.holdInbox(t)
	s.Proxy.Heal()
	m.AwaitLink(t, "attic")
	open()

	Await(t, "the start", func() bool { return s.Count(t, `SELECT attempt FROM tasks WHERE id = $1`, waits) > 0 })
	release()
	require.True(t, m.Wait(t, waits).State.Terminal())
	m.Check(t)
}
