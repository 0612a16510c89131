package meshtest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
)

// A hub that has lost an order for good may be given it again under its id. The spoke
// has the task and does not run it twice: it tells the new order how it stands and how it
// ended, also where that was said before to an order that nobody knew.
func TestAnOrderThatIsGivenAgainEnds(t *testing.T) {
	t.Parallel()
	for name, meanwhile := range map[string]func(t *testing.T, m *Mesh, task string, open func()){
		"while it runs": func(*testing.T, *Mesh, string, func()) {},
		"after its end": func(t *testing.T, m *Mesh, task string, open func()) {
			open()
			Await(t, "its result, which nobody knows", func() bool {
				return m.Hub.Count(t, `SELECT count(*) FROM inbox WHERE task = $1 AND kind = 'agent.result' AND code = 'RE_UNKNOWN'`, task) == 1
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := Start(t, "attic")
			trace := filepath.Join(t.TempDir(), "trace")
			open := func() { require.NoError(t, os.WriteFile(trace+"-open", nil, 0o600)) }
			order := hub.SpawnRequest{Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeExec,
				Argv: []string{"sh", "-c", `echo ran >>"$0"; echo hello; until [ -e "$0-open" ]; do sleep 0.02; done; exit 3`, trace}}}
			order.ID = m.Order(t, order)
			m.Await(t, order.ID, commands.Running)
			m.Hub.forget(t, order.ID)
			meanwhile(t, m, order.ID, open)

			m.Hub.InTrace("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01") // the same order for all that
			m.Order(t, order)
			Await(t, "its acceptance", func() bool { return m.Agent(t, order.ID).AcceptedAt != nil })
			open()

			v := m.Wait(t, order.ID)
			require.Equal(t, commands.Failed, v.State)
			require.Contains(t, string(v.Result), `"code":3`)
			ran, err := os.ReadFile(trace)
			require.NoError(t, err)
			require.Equal(t, "ran\n", string(ran))
			require.Equal(t, "hello\n", m.Stdout(t, order.ID, true))
			require.Zero(t, m.Hub.Count(t, `SELECT count(*) FROM audit WHERE code = 'RESULT_CONFLICT'`))
		})
	}
}

// Either side may be restored after that, to when the first order was all that it knew.
func TestAnOrderThatWasGivenAgainOutlivesARestore(t *testing.T) {
	t.Parallel()
	for _, side := range []string{"hub", "attic"} {
		t.Run(side, func(t *testing.T) {
			t.Parallel()
			m, r := Start(t, "attic"), newTraced(t)
			order := hub.SpawnRequest{Spoke: "attic", ExpiresInMS: 2000, Spawn: commands.Spawn{Runtime: commands.RuntimeExec,
				Argv: []string{"sh", "-c", `until [ -e "$0" ]; do sleep 0.02; done`, r.gate}}}
			order.ID = m.Order(t, order)
			m.Await(t, order.ID, commands.Running)
			backups := disaster{sides: []string{side}}.backUp(t, m)
			m.AwaitLink(t, "attic")
			m.Hub.forget(t, order.ID)
			m.Order(t, order)
			Await(t, "its acceptance", func() bool { return m.Agent(t, order.ID).AcceptedAt != nil })
			Await(t, "that it is not sent again", func() bool {
				return m.Hub.Count(t, `SELECT count(*) FROM outbox WHERE task = $1 AND exp > clock_timestamp()`, order.ID) == 0
			})

			disaster{sides: []string{side}}.restore(t, m, backups)
			agreeAgain(t, m, "attic")
			r.open(t)

			require.Equal(t, commands.Completed, m.Wait(t, order.ID).State)
		})
	}
}

// What has started is known to the hub that gives the order again: a spoke that then loses
// its disk does not start it a second time.
func TestAnOrderThatWasGivenAgainRunsOnce(t *testing.T) {
	t.Parallel()
	m, r := Start(t, "attic"), newTraced(t)
	d := disaster{sides: []string{"attic"}, gone: true}
	backups := d.backUp(t, m)
	m.AwaitLink(t, "attic")
	order := r.give(t, m, r.gate)
	m.Await(t, order.ID, commands.Running)
	m.Hub.forget(t, order.ID)
	m.Order(t, order)
	Await(t, "its acceptance", func() bool { return m.Agent(t, order.ID).AcceptedAt != nil })
	require.Equal(t, 1, m.Agent(t, order.ID).Attempt)

	d.restore(t, m, backups)
	agreeAgain(t, m, "attic")
	r.open(t)

	require.True(t, m.Wait(t, order.ID).State.Terminal())
	require.Equal(t, 1, r.runs(t, order.ID))
}

// What a spoke has taken in goes on, also where its policy or the grant would refuse it by
// now: the order is known, whoever gives it again.
func TestAnOrderThatIsGivenAgainIsNotJudgedAgain(t *testing.T) {
	t.Parallel()
	for name, narrow := range map[string]func(t *testing.T, s *Spoke){
		"by the policy": func(t *testing.T, s *Spoke) {
			require.NoError(t, os.WriteFile(policy.File(s.Dir), []byte(policy.Presets["deny"]), 0o600))
			s.Do(t, "POST", "/api/v1/policy/reload", nil, nil)
		},
		"by the grant": func(t *testing.T, s *Spoke) {
			s.Do(t, "PATCH", "/api/v1/connections/lab/grant", map[string]any{"runtimes": []string{commands.RuntimeNoop}}, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, r := Start(t, "attic"), newTraced(t)
			order := r.give(t, m, r.gate)
			m.Await(t, order.ID, commands.Running)
			m.Hub.forget(t, order.ID)
			narrow(t, m.Spokes["attic"])

			m.Order(t, order)
			m.Await(t, order.ID, commands.Running)
			r.open(t)

			require.Equal(t, commands.Completed, m.Wait(t, order.ID).State)
			require.Equal(t, commands.Unavailable, m.Wait(t, m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: order.Spawn})).State, "a new one is judged")
		})
	}
}

// forget takes an order from the hub that no comparison of histories gives back.
func (i *Instance) forget(t *testing.T, task string) {
	t.Helper()
	for _, table := range []string{"outbox", "mirrors"} {
		_, err := i.SQL.Exec(t.Context(), `DELETE FROM `+table+` WHERE task = $1`, task)
		require.NoError(t, err)
	}
}
