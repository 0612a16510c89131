package meshtest

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/hub/api"
)

// Who was shown fewer agents than there are ends none of them.
func TestKillsOfASelection(t *testing.T) {
	t.Parallel()
	m := Start(t, "attic")
	d := m.Hub.describe(t)
	ended := m.Order(t, hub.SpawnRequest{Spoke: "attic", Labels: commands.Labels{"app": "web"}, Spawn: commands.Spawn{Runtime: commands.RuntimeNoop}})
	m.Wait(t, ended)
	var ids []string
	for _, labels := range []commands.Labels{{"app": "web"}, {"app": "web"}, {"app": "db"}, nil} {
		ids = append(ids, m.Order(t, hub.SpawnRequest{Spoke: "attic", Labels: labels, Spawn: commands.Spawn{Runtime: commands.RuntimeExec, Argv: []string{"sleep", "1000"}}}))
	}
	for _, id := range ids {
		m.Await(t, id, commands.Running)
	}
	shown, err := json.Marshal(ids)
	require.NoError(t, err)
	kill := func(body string) (int, string) {
		if !strings.Contains(body, "ids") {
			body = strings.TrimSuffix(body, "}") + `,"ids":` + string(shown) + `}`
		}
		status, said := d.ask(t, "POST", api.Base+"/tasks/kill", "application/json", body)
		return status, string(said)
	}
	many := strings.Repeat(`"`+ids[0]+`",`, 5000) + `"` + ids[0] + `"`
	for body, want := range map[string]int{
		`{"labels":"app=web","ids":[]}`:                          http.StatusBadRequest,
		`{"labels":"app=web","reason":""}`:                       http.StatusBadRequest,
		`{"labels":"app==web","reason":"x"}`:                     http.StatusBadRequest,
		`{"reason":"x"}`:                                         http.StatusBadRequest,
		`{"labels":" ","spoke":"","reason":"x"}`:                 http.StatusBadRequest,
		`{"all":true,"spoke":"attic","reason":"x"}`:              http.StatusBadRequest,
		`{"all":true,"labels":"app","reason":"x"}`:               http.StatusBadRequest,
		`{"all":true,"reason":"x","grace_ms":-1}`:                http.StatusBadRequest,
		`{"all":true,"reason":"x","grace_ms":9999999999}`:        http.StatusBadRequest,
		`{"all":true,"reason":"x","ids":["` + ids[0][:8] + `"]}`: http.StatusBadRequest,
		`{"all":true,"reason":"x","ids":[` + many + `]}`:         http.StatusBadRequest,
		`{"spoke":"cellar","reason":"x"}`:                        http.StatusNotFound,
		`{"all":true,"reason":"x","expected":4,"ids":[]}`:        http.StatusBadRequest,
	} {
		status, said := kill(body)
		require.Equal(t, want, status, "%.200s: %s", body, said)
	}
	require.ErrorContains(t, m.Spokes["attic"].Ask(t, "POST", api.Base+"/tasks/kill", map[string]any{"all": true, "reason": "x", "ids": []string{}}, nil), "this is asked of its hub")
	require.Zero(t, m.Hub.Count(t, `SELECT count(*) FROM mirrors WHERE kill IS NOT NULL`))

	for body, want := range map[string]int{`{"labels":"app=web","reason":"bad release","grace_ms":100,"ids":["` + ids[0] + `","` + ids[1] + `"]}`: 2, `{"spoke":"attic","labels":"!app","reason":"x","ids":["` + ids[3] + `"]}`: 1} {
		status, said := kill(body)
		require.Equal(t, http.StatusOK, status, said)
		var sum api.KillSummary
		require.NoError(t, json.Unmarshal([]byte(said), &sum))
		require.Equal(t, api.KillSummary{Killed: want, Refused: []api.KillRefused{}}, sum)
	}
	for _, i := range []int{0, 1, 3} {
		require.Equal(t, commands.Cancelled, m.Wait(t, ids[i]).State)
	}
	require.Equal(t, 3, m.Hub.Count(t, `SELECT count(DISTINCT message) + count(DISTINCT object) - 3 FROM (SELECT o.id AS message, a.object FROM outbox o JOIN audit a ON a.object = o.task::text WHERE o.kind = 'agent.kill' AND a.action = 'task.kill_ordered') AS x`), "each by an order of its own")
	require.Equal(t, commands.Running, m.Agent(t, ids[2]).State)
	status, said := kill(`{"labels":"app=web","reason":"x","ids":[]}`)
	require.Equal(t, http.StatusOK, status, said)
	m.Hub.Do(t, "POST", api.Base+"/tasks/"+ids[2]+"/kill", api.KillRequest{Reason: "enough"}, nil)
	m.Wait(t, ids[2])
}

// Who asked for many kills and leaves has asked for them all the same.
func TestKillsOfASelectionGoOnWhenTheCallerLeaves(t *testing.T) {
	t.Parallel()
	m := Start(t, "attic")
	d := m.Hub.describe(t)
	task := m.Spawn(t, "attic", "sleep", "1000")
	m.Await(t, task, commands.Running)
	held, err := m.Hub.SQL.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = held.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = held.Exec(t.Context(), `SELECT FROM mirrors FOR UPDATE`)
	require.NoError(t, err)
	waits := func() bool {
		return m.Hub.Count(t, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%FOR UPDATE OF m%'`) > 0
	}
	asking, leave := context.WithCancel(t.Context())
	defer leave()
	req, err := http.NewRequestWithContext(asking, "POST", "http://instance"+api.Base+"/tasks/kill", strings.NewReader(`{"all":true,"reason":"x","ids":["`+task+`"]}`))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	left := make(chan error, 1)
	go func() {
		resp, err := d.client.Do(req)
		if err == nil {
			err = resp.Body.Close()
		}
		left <- err
	}()
	Await(t, "the kill waits for the mirror", waits)

	leave()
	require.ErrorIs(t, <-left, context.Canceled)
	for begun := time.Now(); time.Since(begun) < 300*time.Millisecond; time.Sleep(20 * time.Millisecond) {
		require.True(t, waits(), "it was given up")
	}
	require.NoError(t, held.Commit(t.Context()))

	require.Equal(t, commands.Cancelled, m.Wait(t, task).State)
}

// Nobody ends what nobody was shown, whatever its id and its time: an order may be committed long after others with a
// later time, and an agent that came in the place of another one stays.
func TestAKillSparesWhatWasNotShown(t *testing.T) {
	t.Parallel()
	m := Start(t, "attic")
	order := func(id string) string {
		return m.Order(t, hub.SpawnRequest{ID: id, Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeExec, Argv: []string{"sleep", "1000"}}})
	}
	shown := order("")
	later := order("00000000-0000-4000-8000-000000000001")
	m.Hub.Exec(t, `UPDATE mirrors SET created_at = created_at - interval '1 hour' WHERE task = $1`, later)
	kill := func(ids ...string) (sum api.KillSummary) {
		m.Hub.Do(t, "POST", api.Base+"/tasks/kill", api.KillSelection{All: true, Reason: "x", IDs: ids}, &sum)
		return sum
	}

	require.Equal(t, api.KillSummary{Killed: 1, Later: 1, Refused: []api.KillRefused{}}, kill(shown))
	require.Equal(t, commands.Cancelled, m.Wait(t, shown).State)
	require.Zero(t, m.Hub.Count(t, `SELECT count(*) FROM mirrors WHERE kill IS NOT NULL AND task = $1`, later))
	require.Equal(t, api.KillSummary{Killed: 1, Refused: []api.KillRefused{}}, kill(later))
	require.Equal(t, commands.Cancelled, m.Wait(t, later).State)
}

// Where agents end at all times, those that were shown and go on are killed all the same.
func TestAKillCountsWhatEndedMeanwhile(t *testing.T) {
	t.Parallel()
	m := Start(t, "attic")
	ended, open := m.Spawn(t, "attic", "sleep", "1000"), m.Spawn(t, "attic", "sleep", "1000")
	ask := api.KillSelection{All: true, Reason: "x", IDs: []string{ended, open}}
	kill := func() (sum api.KillSummary) {
		m.Hub.Do(t, "POST", api.Base+"/tasks/kill", ask, &sum)
		return sum
	}
	m.Hub.Do(t, "POST", api.Base+"/tasks/"+ended+"/kill", api.KillRequest{Reason: "first"}, nil)
	m.Wait(t, ended)

	require.Equal(t, api.KillSummary{Killed: 1, EndedAlready: 1, Refused: []api.KillRefused{}}, kill())
	require.Equal(t, commands.Cancelled, m.Wait(t, open).State)
	require.Equal(t, api.KillSummary{EndedAlready: 2, Refused: []api.KillRefused{}}, kill())
}

// Kills are ordered 200 in a transaction: where the database fails one of them, its agents are named, and the others are killed.
func TestABatchOfKillsThatFailsIsTold(t *testing.T) {
	t.Parallel()
	m := Start(t, "attic")
	m.Stop(t, "attic")
	var ids []string
	for range 201 {
		ids = append(ids, m.Noop(t, "attic"))
	}
	last := slices.Max(ids)
	m.Hub.Exec(t, `CREATE FUNCTION no_kill() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'the test says so'; END $$`)
	m.Hub.Exec(t, `CREATE TRIGGER no_kill BEFORE UPDATE OF kill ON mirrors FOR EACH ROW WHEN (NEW.task = '`+last+`') EXECUTE FUNCTION no_kill()`)
	kill := func() (sum api.KillSummary, err error) {
		err = m.Hub.Ask(t, "POST", api.Base+"/tasks/kill", api.KillSelection{All: true, Reason: "x", IDs: ids}, &sum)
		return sum, err
	}

	sum, err := kill()

	require.NoError(t, err)
	require.Equal(t, []int{200, 0, 0}, []int{sum.Killed, sum.EndedAlready, sum.Later})
	require.Len(t, sum.Refused, 1)
	require.Equal(t, last, sum.Refused[0].ID)
	require.Contains(t, sum.Refused[0].Detail, "it is not known whether this was ordered")
	require.Equal(t, 200, m.Hub.Count(t, `SELECT count(*) FROM mirrors WHERE kill IS NOT NULL`))
	_, err = kill()
	require.Error(t, err, "nothing was ordered")
}

// What is named and is not selected, or is nobody's, has not ended: it is refused by its id.
func TestAKillSaysWhatIsNotSelected(t *testing.T) {
	t.Parallel()
	const nobody = "00000000-0000-4000-8000-000000000001"
	m := Start(t, "attic")
	order := func(app string) string {
		return m.Order(t, hub.SpawnRequest{Spoke: "attic", Labels: commands.Labels{"app": app}, Spawn: commands.Spawn{Runtime: commands.RuntimeExec, Argv: []string{"sleep", "1000"}}})
	}
	selected, other := order("web"), order("db")
	var sum api.KillSummary

	m.Hub.Do(t, "POST", api.Base+"/tasks/kill", api.KillSelection{Labels: "app=web", Reason: "x", IDs: []string{nobody, other, selected}}, &sum)

	require.Equal(t, api.KillSummary{Killed: 1, Refused: []api.KillRefused{
		{ID: nobody, Code: string(commands.NotFound), Detail: "no agent " + nobody},
		{ID: other, Code: string(commands.Validation), Detail: "it is not selected"},
	}}, sum)
	require.Zero(t, m.Hub.Count(t, `SELECT count(*) FROM mirrors WHERE kill IS NOT NULL AND task = $1`, other))
	m.Hub.Do(t, "POST", api.Base+"/tasks/"+other+"/kill", api.KillRequest{Reason: "enough"}, nil)
	m.Wait(t, other)
	m.Wait(t, selected)
}
