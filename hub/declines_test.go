package hub_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
	"github.com/spawnmesh/spawnmesh/store"
)

// reasonsOf is why orders do not go over a connection, by code, as an instance says it.
func reasonsOf(t *testing.T, i *meshtest.Instance, name string) map[commands.Cause]string {
	t.Helper()
	var v struct{ Reasons []commands.WhyReason }
	i.Do(t, "GET", "/api/v1/connections/"+name, nil, &v)
	said := map[commands.Cause]string{}
	for _, r := range v.Reasons {
		said[r.Code] += r.Text + "; " + r.Fix
	}
	return said
}

// What a host does not let a hub do is known at the hub before an order is refused: both sides say it, as long as it is so.
func TestAHubKnowsWhatASpokeDoesNotTake(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	attic := m.Spokes["attic"]
	grant := func(change map[string]any) { attic.Do(t, "PATCH", "/api/v1/connections/lab/grant", change, nil) }
	rules := func(text string) {
		require.NoError(t, os.WriteFile(policy.File(attic.Dir), []byte(meshtest.Loose(text)), 0o600))
		attic.Do(t, "POST", "/api/v1/policy/reload", nil, nil)
	}
	before, err := os.ReadFile(policy.File(attic.Dir))
	require.NoError(t, err)
	says := func(code commands.Cause, at, there string) {
		t.Helper()
		meshtest.Await(t, "what the hub knows: "+at, func() bool { return reasonsOf(t, m.Hub.Instance, "attic")[code] != "" })
		require.Contains(t, reasonsOf(t, m.Hub.Instance, "attic")[code], at)
		require.Contains(t, reasonsOf(t, attic.Instance, "lab")[code], there)
	}
	nothing := func() {
		t.Helper()
		meshtest.Await(t, "that the hub knows of the end", func() bool { return len(reasonsOf(t, m.Hub.Instance, "attic")) == 0 })
		require.Empty(t, reasonsOf(t, attic.Instance, "lab"))
	}
	meshtest.Await(t, "a heartbeat", func() bool { return m.View(t, "attic").Liveness == hub.Alive })
	nothing()

	grant(map[string]any{"expires": time.Now().Add(-time.Hour)})
	says(commands.CauseGrant, "takes nothing of this hub: the grant there has expired; its host decides; on its host: spawnmesh connections grant "+m.View(t, "attic").ID+" --expires never",
		"may order nothing: its grant has expired; spawnmesh connections grant lab --expires never")
	refused := m.Wait(t, m.Noop(t, "attic"))
	require.Equal(t, commands.Unavailable, refused.State, "the hub orders all the same, and the spoke decides")
	grant(map[string]any{"expires": time.Time{}})
	nothing()

	grant(map[string]any{"kinds": []string{"agent.spawn", "agent.status", "agent.kill", "agent.answer", "agent.pause"}})
	says(commands.CauseGrant, "does not take agent.review of this hub", "may not order agent.review")
	refuses := func(code commands.Code, r api.NewTask) {
		t.Helper()
		r.Runtime, r.Review = commands.RuntimeNoop, true
		err := m.Hub.Ask(t, "POST", "/api/v1/tasks", r, nil)
		require.Equal(t, code, commands.CodeOf(err), "what it would deliver waits for good: %v", err)
		require.ErrorContains(t, err, "attic takes no reviews of this hub")
	}
	refuses(commands.Grant, api.NewTask{Spoke: "attic"})
	refuses(commands.NoSpoke, api.NewTask{Any: true})
	require.Equal(t, commands.Completed, m.Wait(t, m.Noop(t, "attic")).State, "what nobody reviews is taken")
	grant(map[string]any{"kinds": store.FullGrant().Kinds})
	nothing()

	grant(map[string]any{"kinds": []string{"agent.status", "agent.kill"}})
	says(commands.CauseGrant, "does not take agent.spawn, agent.answer, agent.pause, agent.review of this hub", "may not order agent.spawn, agent.answer, agent.pause, agent.review")
	grant(map[string]any{"kinds": []string{"agent.spawn", "agent.status", "agent.kill", "agent.answer", "agent.pause", "agent.review"}})
	nothing()

	rules("version: 1\nruntimes: []\n")
	says(commands.CausePolicy, "starts nothing for this hub: the policy of its host", "may start nothing: the policy of this host")
	require.NoError(t, os.WriteFile(policy.File(attic.Dir), before, 0o600))
	attic.Do(t, "POST", "/api/v1/policy/reload", nil, nil)
	nothing()
	require.Equal(t, commands.Completed, m.Wait(t, m.Noop(t, "attic")).State)
}

// An agent that a spoke has accepted waits while the grant has expired, and its hub says so.
func TestWhyAnAgentWaitsForAGrant(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t)
	a := m.Attack(t, "attic")
	asked := a.Order(t, m)
	accept(t, m, a, asked)
	beat := func(list ...commands.Decline) {
		a.Beat(t, a.Seal(t, &commands.Heartbeat{IntervalMS: 3_600_000, KillLevel: "group", Slots: 1, Connection: commands.ConnectionView{State: "active"}, Declines: list}, nil, nil).Envelope)
	}
	why := func() (list []commands.WhyReason) {
		var v struct{ Reasons []commands.WhyReason }
		m.Hub.Do(t, "GET", "/api/v1/tasks/"+asked.Task+"/why", nil, &v)
		return v.Reasons
	}

	beat(commands.Decline{Code: commands.DeclinesExpired, Since: 7})
	meshtest.Await(t, "the reason", func() bool { return why()[0].Code == commands.CauseGrant })
	require.Equal(t, "attic: takes nothing of this hub: the grant there has expired", why()[0].Text)
	require.Equal(t, int64(7), why()[0].Since.UnixMilli())

	beat(commands.Decline{Code: commands.DeclinesKind, What: string(commands.KillKind)}, commands.Decline{Code: "tide", What: string(commands.SpawnKind)})
	meshtest.Await(t, "a reason of a newer spoke", func() bool {
		return why()[0].Text == "attic: does not take all that this hub orders (tide agent.spawn)"
	})
	require.Len(t, why(), 1, "that it takes no kill does not keep it from its start")
}

// A spoke that takes orders and starts none of them for a lane or an account of its host says so to both sides, and how many of
// a hub's own agents wait; what else waits there is not told.
func TestAHubKnowsThatALaneHoldsItsAgents(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	attic := m.Spokes["attic"]
	lane := func(state string) {
		attic.Do(t, "PATCH", "/api/v1/workspaces/main/lanes/default", map[string]any{"state": state, "reason": "the test says so"}, nil)
	}
	says := func(code commands.Cause, there, here, host string) {
		t.Helper()
		meshtest.Await(t, "that the hub knows", func() bool { return reasonsOf(t, m.Hub.Instance, "attic")[code] != "" })
		require.Contains(t, reasonsOf(t, m.Hub.Instance, "attic")[code], there)
		require.Contains(t, reasonsOf(t, attic.Instance, "lab")[code], here)
		var v struct{ Reasons []commands.WhyReason }
		attic.Do(t, "GET", "/api/v1/instance", nil, &v)
		said := ""
		for _, r := range v.Reasons {
			if r.Code == code {
				said += r.Text + "; " + r.Fix
			}
		}
		require.Contains(t, said, host)
	}
	nothing := func() {
		t.Helper()
		meshtest.Await(t, "that the hub knows of the end", func() bool { return len(reasonsOf(t, m.Hub.Instance, "attic")) == 0 })
		require.Empty(t, reasonsOf(t, attic.Instance, "lab"))
	}
	lane("paused")
	says(commands.CauseLane, "starts nothing: the lane of its agents is paused or disabled there; what is ordered waits", "spawnmesh lane resume default", "starts nothing: lane default, of agents, is paused or disabled; spawnmesh lane resume default")
	for _, title := range []string{"a", "b", "c"} {
		attic.Do(t, "POST", "/api/v1/workspaces/main/tasks", map[string]any{"items": []map[string]any{{"title": title, "lane": "other"}}}, nil)
	}
	first, second := m.Noop(t, "attic"), m.Noop(t, "attic")
	meshtest.Await(t, "what waits", func() bool {
		return m.View(t, "attic").Queued == 2 && attic.Count(t, `SELECT sum(n)::int FROM counted WHERE what = 'ready'`) == 5
	})
	attic.Exec(t, `NOTIFY spawnmesh_changed`)
	require.Equal(t, 2, m.View(t, "attic").Queued, "cards of the host are none of it")
	lane("active")
	m.Wait(t, first)
	m.Wait(t, second)
	nothing()

	attic.Exec(t, `INSERT INTO account_limits (workspace, account, until, task) VALUES ('main', 'claude', clock_timestamp() + interval '1 hour', gen_random_uuid())`)
	m.Noop(t, "attic") // what is written is looked at
	says(commands.CauseLimit, "has an account that has met a limit of its provider; agents of that account wait", "spawnmesh spoke policy reload", "waits with agents of accounts that have met a limit of their provider: 1")
	attic.Do(t, "POST", "/api/v1/policy/reload", nil, nil)
	nothing()
}

// A hub knows at once that a lane or an account of a host holds agents, and that it does no more: not with the next regular heartbeat.
func TestAHubKnowsAtOnceWhatHoldsAgents(t *testing.T) {
	t.Parallel()
	m := meshtest.Plan{Interval: time.Hour}.Start(t, "attic")
	attic := m.Spokes["attic"]
	knows := func(code commands.Cause, want bool) {
		t.Helper()
		meshtest.Await(t, "what the hub knows", func() bool { return (reasonsOf(t, m.Hub.Instance, "attic")[code] != "") == want })
	}

	for _, state := range []string{"paused", "active"} {
		attic.Do(t, "PATCH", "/api/v1/workspaces/main/lanes/default", map[string]any{"state": state, "reason": "the test says so"}, nil)
		knows(commands.CauseLane, state == "paused")
	}
	for _, change := range []string{`INSERT INTO account_limits (workspace, account, until, task) VALUES ('main', 'claude', clock_timestamp() + interval '1 hour', gen_random_uuid())`, `DELETE FROM account_limits`} {
		attic.Exec(t, change)
		m.Wait(t, m.Noop(t, "attic")) // what is written is looked at
		knows(commands.CauseLimit, change != `DELETE FROM account_limits`)
	}
}

// What a policy has refused is known where the next order for it is written, also where the spoke was named; what was refused says
// what would change it, and its result says by whom.
func TestARefusalIsRemembered(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	attic := m.Spokes["attic"]
	require.NoError(t, os.WriteFile(policy.File(attic.Dir), []byte(meshtest.Loose("version: 1\nruntimes: []\n")), 0o600))
	attic.Do(t, "POST", "/api/v1/policy/reload", nil, nil)
	meshtest.Await(t, "that the hub knows the policy", func() bool { return reasonsOf(t, m.Hub.Instance, "attic")[commands.CausePolicy] != "" })

	refused := m.Wait(t, m.Noop(t, "attic"))

	require.True(t, refused.Refused())
	var why struct{ Reasons []commands.WhyReason }
	m.Hub.Do(t, "GET", "/api/v1/tasks/"+refused.Task+"/why", nil, &why)
	require.Equal(t, "attic says: "+refused.Refusals[0].Hint, why.Reasons[0].Fix)
	var result api.TaskResult
	m.Hub.Do(t, "GET", "/api/v1/tasks/"+refused.Task+"/result", nil, &result)
	require.Len(t, result.Refusals, 1)
	require.Equal(t, string(commands.Policy), result.Refusals[0].Code)
	require.NotEmpty(t, result.Refusals[0].Why)
	var v api.Schedule
	m.Hub.Do(t, "POST", "/api/v1/schedules", api.NewSchedule{Name: "nightly", Cron: "0 3 * * *", Task: api.NewTask{Runtime: api.Noop, Spoke: "attic"}}, &v)
	require.Equal(t, "the policy of attic has refused this program", v.Note)
}
