package meshtest

import (
	"bufio"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/pgtest"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
)

// Whatever a spawn asks of either database costs the same whatever has ended there
// before, whether the server has statistics of the tables or not. The servers tell
// how they ran each statement, those inside functions too: one that is new cannot be
// left out.
func TestNothingOfASpawnReadsTheHistory(t *testing.T) {
	t.Parallel()
	m := Start(t, "attic")
	s := m.Spokes["attic"]
	m.Wait(t, m.Noop(t, "attic"))
	m.stopBoth(t)
	for side, i := range map[string]*Instance{"hub": m.Hub.Instance, "spoke": s.Instance} {
		i.exec(t, stopVacuum)
		for _, sql := range append(history[side], historyOfBoth) {
			i.exec(t, sql, s.Conn, side, 100_000)
		}
		i.explain(t)
	}
	for _, known := range []string{"without statistics", "with statistics"} {
		if known == "with statistics" {
			m.Hub.exec(t, `ANALYZE`)
			s.exec(t, `ANALYZE`)
		}
		log := follow(t)
		m.startBoth(t, "attic")

		m.walkTheWholeWay(t, "attic")

		m.stopBoth(t)
		log.refuseWaste(t, known)
	}
}

// A session plans a statement once, and keeps the plan until the table is analysed. One that
// was made of empty tables must do when they have filled up.
func TestNoPlanOfASpawnIsForEmptyTablesOnly(t *testing.T) {
	t.Parallel()
	m := Start(t, "attic")
	s := m.Spokes["attic"]
	sides := map[string]*Instance{"hub": m.Hub.Instance, "spoke": s.Instance}
	m.stopBoth(t)
	for _, i := range sides {
		i.exec(t, stopVacuum)
		i.explain(t)
	}
	m.startBoth(t, "attic")
	m.walkTheWholeWay(t, "attic")
	for side, i := range sides {
		for _, sql := range append(history[side], historyOfBoth) {
			i.exec(t, sql, s.Conn, side, 20_000)
		}
	}
	log := follow(t)

	m.walkTheWholeWay(t, "attic")

	m.stopBoth(t)
	log.refuseWaste(t, "planned on empty tables")
}

func (m *Mesh) startBoth(t testing.TB, name string) {
	t.Helper()
	m.Start(t, "hub")
	m.Start(t, name)
	m.AwaitLink(t, name)
}

// refuseWaste fails for each plan that is dearer the more there is.
func (l serverLog) refuseWaste(t testing.TB, known string) {
	t.Helper()
	for _, p := range l.plans(t) {
		if slices.ContainsFunc(batchwise, func(text string) bool { return strings.Contains(p.Text, text) }) {
			continue
		}
		assert.Empty(t, p.Plan.Wasteful(), "%s: %s", known, p.Text)
	}
}

// batchwise marks what is no part of a spawn and goes on meanwhile, a batch of rows at a
// time: which tasks lack output, when a link is up.
var batchwise = []string{"generate_series(1, m.attempt)"}

// walkTheWholeWay does all that is part of spawns, one by one and 64 at a time.
func (m *Mesh) walkTheWholeWay(t testing.TB, name string) {
	t.Helper()
	order := hub.SpawnRequest{Any: true, IdempotencyKey: rand.Text(), Spawn: commands.Spawn{Runtime: commands.RuntimeNoop}}
	first := m.Order(t, order)
	m.Wait(t, first)
	require.Equal(t, first, m.Order(t, order), "an order that is given again")
	m.Wait(t, m.Spawn(t, name, "sh", "-c", "echo out; exit 3"))
	var ids []string
	for range 4 {
		ids = append(ids, m.Spawn(t, name, "sleep", "1000"))
	}
	for _, id := range ids {
		m.Await(t, id, commands.Running)
	}
	waiting := m.Noop(t, name)
	var said api.TaskStanding
	m.Hub.Do(t, "POST", "/api/v1/tasks/"+ids[0]+"/ask", nil, &said)
	for _, id := range append(ids, waiting) {
		m.Hub.Do(t, "POST", "/api/v1/tasks/"+id+"/kill", map[string]string{"reason": "the test says so"}, nil)
	}
	for _, id := range append(ids, waiting) {
		m.Wait(t, id)
	}
	m.atOnce(64, func() { m.Wait(t, m.Noop(t, name)) })
	for side, i := range map[string]*Instance{"the hub": m.Hub.Instance, name: m.Spokes[name].Instance} {
		Await(t, "nothing waits to be confirmed by "+side, func() bool { return i.Count(t, `SELECT count(*) FROM open_outbox`) == 0 })
	}
}

func (m *Mesh) atOnce(n int, do func()) {
	var all sync.WaitGroup
	for range n {
		all.Go(do)
	}
	all.Wait()
}

func (m *Mesh) stopBoth(t testing.TB) {
	t.Helper()
	for name := range m.Spokes {
		m.Stop(t, name)
	}
	m.Stop(t, "hub")
}

func (i *Instance) exec(t testing.TB, sql string, args ...any) {
	t.Helper()
	ctx, done := withPatience(t)
	defer done()
	_, err := i.SQL.Exec(ctx, sql, args...)
	require.NoError(t, err, sql)
}

// explain has the server print the plans of what the instance asks in its next lives.
func (i *Instance) explain(t testing.TB) {
	t.Helper()
	address, err := url.Parse(pgtest.Admin(i.url)) // nobody else may load the module; the sessions act as the engine's role all the same
	require.NoError(t, err)
	q := address.Query()
	options := "-c session_preload_libraries=auto_explain"
	for name, value := range map[string]string{"log_min_duration": "0", "log_analyze": "on", "log_buffers": "on", "log_timing": "off", "log_nested_statements": "on", "log_format": "json"} {
		options += " -c auto_explain." + name + "=" + value
	}
	q.Set("options", options)
	address.RawQuery = q.Encode()
	i.url = strings.ReplaceAll(address.String(), "+", "%20")
}

// A serverLog is what the server of this test binary prints from one moment on.
type serverLog struct{ *os.File }

func follow(t testing.TB) serverLog {
	t.Helper()
	f, err := os.Open(pgtest.ServerLog(t))
	require.NoError(t, err)
	_, err = f.Seek(0, io.SeekEnd)
	require.NoError(t, err)
	return serverLog{f}
}

// An explained is how a statement was run.
type explained struct {
	Text string `json:"Query Text"`
	Plan storetest.Plan
}

// plans returns the plans that were printed meanwhile: an entry goes on over the lines
// that begin with a tab.
func (l serverLog) plans(t testing.TB) (list []explained) {
	t.Helper()
	defer l.Close()
	var text *strings.Builder
	end := func() {
		if text == nil {
			return
		}
		var e explained
		require.NoError(t, json.Unmarshal([]byte(text.String()), &e), text)
		list = append(list, e)
		text = nil
	}
	lines := bufio.NewReader(l)
	for {
		line, err := lines.ReadString('\n')
		more, goesOn := strings.CutPrefix(line, "\t")
		switch {
		case goesOn && text != nil:
			text.WriteString(more)
		case !goesOn:
			end()
			if strings.HasSuffix(line, " ms  plan:\n") {
				text = &strings.Builder{}
			}
		}
		if err != nil {
			require.ErrorIs(t, err, io.EOF)
			end()
			require.Greater(t, len(list), 100, "the server has printed few plans")
			return list
		}
	}
}

const stopVacuum = `DO $$ DECLARE t text; BEGIN FOR t IN SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace LOOP
	EXECUTE format('ALTER TABLE %I SET (autovacuum_enabled = off)', t); END LOOP; END $$`

// The history of $3 tasks that have ended, on the connection $1, in the numbers below those
// that were given; $2 is the side.
var history = map[string][]string{
	"hub": {
		`INSERT INTO mirrors (task, conn, state, command, command_digest, idempotency_key, request_digest, created_by, spec, expires_at, accepted_at, started_at, ended_at, result)
			SELECT ` + nth("c") + `, $1, 'completed', ` + nth("a") + `, '', 'key ' || n, '', 'bench', '{}', now(), now(), now(), now(), '{"outcome": "succeeded"}' FROM generate_series(1, $3::int) AS n WHERE $2 <> ''`,
		`INSERT INTO outbox (id, conn, seq, queue, kind, digest, task, exp, envelope)
			SELECT ` + nth("a") + `, $1, -n, 'run', 'agent.spawn', '', ` + nth("c") + `, now() + interval '1 day', 'x' FROM generate_series(1, $3::int) AS n WHERE $2 <> ''`,
		`INSERT INTO inbox (conn, id, seq, digest, kind, re, task, exp, envelope)
			SELECT $1, ` + nth("b") + `, -n, '', 'agent.result', ` + nth("a") + `, ` + nth("c") + `, now() + interval '1 day', 'x' FROM generate_series(1, $3::int) AS n WHERE $2 <> ''`,
	},
	"spoke": {
		`WITH t AS (
			INSERT INTO tasks (id, class, conn, command, command_digest, state, attempt, epoch, started_at, ended_at, last_type, last_owner, last_claim, last_claimed_at, last_started_at, last_outcome)
			SELECT ` + nth("c") + `, (SELECT max(id) FROM classes), $1, ` + nth("a") + `, '', 'completed', 1, 1, now(), now(), 'initial', 'bench', ` + nth("c") + `, now(), now(), 'succeeded' FROM generate_series(1, $3::int) AS n WHERE $2 <> '' RETURNING id
		), bodies AS (
			INSERT INTO task_bodies (task, workspace, spec, result) SELECT id, 'main', '{}', '{}' FROM t
		), attempts AS (
			INSERT INTO ended_attempts (task, number, workspace, epoch, type, owner, claim, claimed_at, outcome) SELECT id, 0, 'main', 0, 'initial', 'bench', id, now(), 'failed' FROM t
		), ended AS (
			INSERT INTO ended (task, workspace, lane, state) SELECT id, 'main', 'default', 'completed' FROM t
		), killed AS (
			INSERT INTO kills (conn, command, digest, task, reason, grace, exp, answered_at, tombstone) SELECT $1, id, '', id, '', '0', now(), now(), false FROM t
		)
		INSERT INTO agents (id, conn, runtime, over) SELECT id, $1, 'exec', true FROM t`,
		`INSERT INTO counts (workspace, lane, what, n) SELECT 'main', 'default', 'completed', $3::int WHERE $1::text <> $2::text ON CONFLICT (workspace, lane, what) DO UPDATE SET n = counts.n + excluded.n`,
		`INSERT INTO outbox (id, conn, seq, queue, kind, digest, re, task, exp, envelope)
			SELECT ` + nth("b") + `, $1, -n, 'evt', 'agent.result', '', ` + nth("a") + `, ` + nth("c") + `, now() + interval '1 day', 'x' FROM generate_series(1, $3::int) AS n WHERE $2 <> ''`,
		`INSERT INTO inbox (conn, id, seq, digest, kind, task, exp, envelope)
			SELECT $1, ` + nth("a") + `, -n, '', 'agent.spawn', ` + nth("c") + `, now() + interval '1 day', 'x' FROM generate_series(1, $3::int) AS n WHERE $2 <> ''`,
	},
}

const historyOfBoth = `INSERT INTO audit (workspace, actor, action, object, conn) SELECT CASE n % 2 WHEN 0 THEN 'main' ELSE '' END, 'bench', 'task.done', (` + "'019000c0-0000-7000-8000-' || lpad(to_hex(n), 12, '0')" + `), $1::uuid FROM generate_series(1, 2 * $3::int) AS n WHERE $2 <> ''`

// nth is the nth id of one kind; n is of the statement.
func nth(kind string) string {
	return fmt.Sprintf(`('019000%s0-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid`, kind)
}
