package meshtest

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/store"
)

// why asks the hub why an agent is where it is; with ask its spoke is asked, too.
func (m *Mesh) why(t *testing.T, task, ask string) (w api.TaskWhy) {
	t.Helper()
	m.Hub.Do(t, "GET", "/api/v1/tasks/"+task+"/why?ask="+ask, nil, &w)
	require.NotEmpty(t, w.Reasons)
	return w
}

// because is the reason with a code.
func because(w api.TaskWhy, code commands.Cause) *api.WhyReason {
	for _, r := range w.Reasons {
		if r.Code == api.WhyCode(code) {
			return &r
		}
	}
	return nil
}

// What keeps an agent on its spoke is said at its hub, each cause by its code, and until it is gone.
func TestAHubSaysWhatKeepsAnAgentOnItsSpoke(t *testing.T) {
	t.Parallel()
	m, s, runs, waits := busy(t)
	main := "/api/v1/workspaces/main"
	do := func(method, path string, body map[string]any) func() {
		return func() { s.Do(t, method, main+path, body, nil) }
	}
	causes := map[commands.Cause]struct {
		text     string
		make, no func()
	}{
		commands.CauseBudget: {"budget none has 0 left", do("POST", "/budgets", map[string]any{"name": "none", "scope": "workspace", "dimension": "spawns", "hard": 0}),
			do("POST", "/budgets/none/remove", map[string]any{"reason": "x"})},
		commands.CauseQuota: {"quota one has no room", do("POST", "/quotas", map[string]any{"name": "one", "scope": "workspace", "concurrent": 0}), do("POST", "/quotas/one/remove", map[string]any{"reason": "x"})},
		commands.CauseLane:  {"lane default is paused by", do("PATCH", "/lanes/default", map[string]any{"state": "paused", "reason": "tidying"}), do("PATCH", "/lanes/default", map[string]any{"state": "active"})},
		commands.CauseFreeze: {"instance is frozen by", do("POST", "/freezes", map[string]any{"scope": "instance", "reason": "tidying"}),
			do("POST", "/freezes/lift", map[string]any{"scope": "instance", "reason": "x"})},
		commands.CauseGrant: {"this connection has no grant, or it has expired", func() { s.Exec(t, `UPDATE grants SET expires_at = now() - interval '1 minute'`) },
			func() { s.Exec(t, `UPDATE grants SET expires_at = 'infinity'`) }},
		commands.CauseLimit: {"account claude has met a limit", func() {
			s.Exec(t, `INSERT INTO account_limits (workspace, account, task, until) SELECT 'main', 'claude', $1, now() + interval '1 hour'`, runs)
			s.Exec(t, `UPDATE classes SET account = 'claude' WHERE id = (SELECT class FROM tasks WHERE id = $1)`, waits)
		}, func() {
			s.Exec(t, `DELETE FROM account_limits`)
			s.Exec(t, `UPDATE classes SET account = '' WHERE id = (SELECT class FROM tasks WHERE id = $1)`, waits)
		}},
	}
	for code, c := range causes {
		c.make()

		Await(t, "the cause "+string(code), func() bool {
			r := because(m.why(t, waits, "10s"), code)
			return r != nil && r.Where == "attic" && len(r.Text) >= len(c.text) && r.Text[:len(c.text)] == c.text
		})
		if code != commands.CauseLane && code != commands.CauseGrant { // these are in heartbeats, too
			require.Nil(t, because(m.why(t, waits, ""), code), "of its own the hub does not know it")
		}
		c.no()
		require.Nil(t, because(m.why(t, waits, "10s"), code))
	}
	w := m.why(t, waits, "10s")
	slots := because(w, commands.CauseSlots)
	require.NotNil(t, slots)
	require.Equal(t, "no slot is free, of 1; it is the next order of its hub", slots.Text)
	require.Equal(t, commands.Figure(1), slots.Figure)
	require.Len(t, w.Reasons, 1, "a spoke says it once, and the hub not again")
	require.Equal(t, api.TaskState(commands.Queued), w.State)

	s.Proxy.Cut()
	Await(t, "the loss of the link", func() bool { return because(m.why(t, waits, "10s"), commands.CauseLink) != nil })
	w = m.why(t, waits, "10s")
	require.Nil(t, because(w, commands.CauseSlots), "what was so before the link went down is not told as of now")
	require.NotNil(t, because(w, commands.CauseLink).Since)
	require.NotNil(t, because(m.why(t, runs, ""), commands.CauseLink))
	s.Proxy.Heal()
	m.AwaitLink(t, "attic")
	m.Hub.Do(t, "POST", "/api/v1/tasks/"+runs+"/kill", map[string]any{"reason": "enough", "grace_ms": 0}, nil)
	m.Wait(t, waits)
	m.Wait(t, runs)
	done, killed := m.why(t, waits, "10s"), m.why(t, runs, "")
	require.Equal(t, "it has completed", done.Reasons[0].Text)
	require.WithinDuration(t, *m.Agent(t, waits).EndedAt, done.Since, 0)
	require.Equal(t, "spawnmesh retry "+commands.ShortID(runs), killed.Reasons[0].Fix)
	require.Contains(t, killed.Reasons[0].Text, "it was cancelled: ")
}

// What keeps an order at its hub is said there, with since when and what would change it.
func TestAHubSaysWhatKeepsAnOrderHere(t *testing.T) {
	t.Parallel()
	m := Start(t, "attic")
	s := m.Spokes["attic"]
	codes := func(task string) (list []commands.Cause) {
		for _, r := range m.why(t, task, "").Reasons {
			list = append(list, commands.Cause(r.Code))
		}
		return list
	}
	s.Proxy.Cut()
	Await(t, "the loss of the link", func() bool { return !m.View(t, "attic").Linked })
	task := m.Noop(t, "attic")
	require.Equal(t, []commands.Cause{commands.CauseLink, commands.CauseOrder}, codes(task))
	order := because(m.why(t, task, ""), commands.CauseOrder)
	require.WithinDuration(t, time.Now(), *order.Since, time.Minute)
	require.WithinDuration(t, m.Agent(t, task).ExpiresAt, *order.Until, 0)

	m.freezes(t, "", "connection", "attic")
	m.Turn(t, "attic", "suspend")

	require.Equal(t, []commands.Cause{commands.CauseConnection, commands.CauseFreeze, commands.CauseOrder}, codes(task))
	r := because(m.why(t, task, ""), commands.CauseConnection)
	require.Equal(t, "spawnmesh connections resume attic", r.Fix)
	require.NotNil(t, r.Since)
	m.freezes(t, "/lift", "connection", "attic")
	m.Turn(t, "attic", "resume")
	s.Proxy.Heal()
	require.Equal(t, commands.Completed, m.Wait(t, task).State)
	Await(t, "what the spoke says of the connection", func() bool { return m.View(t, "attic").Says.State == string(store.Active) })

	s.Do(t, "POST", "/api/v1/connections/lab/suspend", map[string]string{"reason": "holiday"}, nil)
	Await(t, "its suspension", func() bool { return m.View(t, "attic").Says.State == string(store.Suspended) })
	held := m.Noop(t, "attic")
	require.True(t, slices.Contains(codes(held), commands.CauseConnection))
	suspended := because(m.why(t, held, ""), commands.CauseConnection)
	require.Equal(t, "attic: is suspended by attic: holiday", suspended.Text)
	require.Contains(t, suspended.Fix, "it is resumed on its host")
	m.Turn(t, "attic", "revoke")
	require.Equal(t, []commands.Cause{commands.CauseEnded, commands.CauseOrder}, codes(held), "and how to order it again")
}
