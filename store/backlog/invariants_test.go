package backlog_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/internal/pgtest"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// invariants is what must hold of a backlog's tables whenever no transaction is
// half done. Each is a query that finds what breaks it. told lists who was told
// of in the audit, one row per act and task. One call may claim a task twice, when
// a sweep takes it back in between: what is told of a call counts for both.
var invariants = map[string]string{
	"a task that has not ended stands in exactly one place, one that has in none": `
		SELECT format('%s is %s and stands in %s', t.id, t.state, coalesce(p.names, 'none')) FROM tasks t
		LEFT JOIN (SELECT task, count(*) AS n, string_agg(name, ' and ') AS names FROM places GROUP BY task) AS p ON p.task = t.id
		WHERE coalesce(p.n, 0) <> CASE WHEN is_terminal(t.state) THEN 0 ELSE 1 END`,
	"nobody waits for an answer to what an agent has asked that has ended": `
		SELECT format('%s of %s', q.id, t.id) FROM questions q JOIN tasks t ON t.id = q.task WHERE q.outcome IS NULL AND t.ended_at IS NOT NULL`,
	"a place holds tasks that exist, of its workspace": `
		SELECT format('%s in %s', p.task, p.name) FROM places p LEFT JOIN tasks t ON t.id = p.task WHERE t.workspace IS DISTINCT FROM p.workspace`,
	"the place fits the state": `
		SELECT format('%s is %s, unmet %s, not before %s, and stands in %s', t.id, t.state, t.unmet, t.not_before, p.name) FROM places p JOIN tasks t ON t.id = p.task
		WHERE NOT CASE p.name WHEN 'ready' THEN t.state = 'queued' AND t.unmet = 0 AND coalesce(t.not_before <= clock_timestamp(), true)
			WHEN 'due' THEN t.state = 'queued' AND t.unmet = 0 AND t.not_before = p.at WHEN 'deps' THEN t.state = 'queued' AND t.unmet > 0
			WHEN 'leases' THEN t.state = 'queued' ELSE t.state::text = p.name END`,
	"ready says of a task what the task says": `
		SELECT format('%s', r.task) FROM ready r JOIN tasks t ON t.id = r.task
		WHERE (r.class, r.rank, r.seq, r.attempt, r.epoch, r.type, r.key, r.title, r.estimate)
			IS DISTINCT FROM (t.class, -t.priority, t.seq, t.attempt + 1, t.epoch + 1, t.next_type, t.key, t.title, t.estimate)
			OR NOT r.body AND EXISTS (SELECT FROM task_bodies b WHERE b.task = r.task AND (b.body <> '' OR (b.spec, b.acceptance) IS DISTINCT FROM (NULL, NULL)))`,
	"unmet counts the edges that are not met, and one more where inputs are missing": `
		SELECT format('%s: %s, and %s edges', t.id, t.unmet, d.n) FROM tasks t,
			LATERAL (SELECT count(*) + awaits_input(t.id)::int AS n FROM dependencies d WHERE d.task = t.id AND NOT d.met) AS d WHERE t.unmet <> d.n`,
	"what waits for inputs is found by them": `
		SELECT format('%s: %s', p.task, p.input) FROM parked p WHERE p.input <> (p.why = 'deps' AND awaits_input(p.task))`,
	"an edge is met when its dependency is completed, or failed and is ignored": `
		SELECT format('%s on %s (%s): met is %s', d.task, d.dependency, x.state, d.met) FROM dependencies d JOIN tasks x ON x.id = d.dependency JOIN tasks w ON w.id = d.task
		WHERE CASE WHEN d.met THEN x.state <> 'completed' AND NOT (w.on_failed_dep = 'ignore' AND (is_terminal(x.state) OR x.replays > 0))
			ELSE x.state = 'completed' OR w.on_failed_dep = 'ignore' AND is_terminal(x.state) END`,
	"an edge stays within its workspace": `
		SELECT format('%s on %s', d.task, d.dependency) FROM dependencies d JOIN tasks x ON x.id = d.dependency JOIN tasks w ON w.id = d.task
		WHERE (x.workspace, w.workspace) IS DISTINCT FROM (d.workspace, d.workspace)`,
	"a lease is the attempt behind the last one that has ended, of a later epoch": `
		SELECT format('%s: lease %s/%s, task %s/%s', t.id, l.attempt, l.epoch, t.attempt, t.epoch) FROM leases l JOIN tasks t ON t.id = l.task
		WHERE l.attempt <> t.attempt + 1 OR l.epoch <= t.epoch OR l.conn IS DISTINCT FROM t.conn`,
	"attempts are numbered from 1 without a gap, and only the last may be open": `
		SELECT format('%s: %s', t.id, a.numbers) FROM standing t, LATERAL (
			SELECT count(*) AS n, count(DISTINCT number) AS kinds, max(number) AS last, max(number) FILTER (WHERE ended_at IS NULL) AS open,
				count(*) FILTER (WHERE ended_at IS NULL) AS opens, string_agg(number || CASE WHEN ended_at IS NULL THEN ' open' ELSE '' END, ', ' ORDER BY number) AS numbers
			FROM attempts WHERE task = t.id) AS a
		WHERE a.n <> t.attempt OR a.kinds <> t.attempt OR coalesce(a.last, 0) <> t.attempt OR a.opens > 1 OR a.open <> t.attempt`,
	"epochs of attempts only grow": `
		SELECT format('%s: attempt %s', task, number) FROM (SELECT task, number, epoch, lag(epoch) OVER (PARTITION BY task ORDER BY number) AS before FROM attempts) AS a
		WHERE epoch <= before`,
	"one success at most, and then the task is completed": `
		SELECT format('%s is %s with %s successes', t.id, t.state, a.n) FROM tasks t, LATERAL (
			SELECT count(*) AS n FROM attempts WHERE task = t.id AND outcome = 'succeeded') AS a WHERE a.n > (t.state = 'completed')::int`,
	"no more retries than a task may have": `SELECT format('%s: %s of %s', id, retries, max_retries) FROM tasks WHERE retries > greatest(max_retries, max_losses) OR replays > 10`,
	"a budget has reserved what the open attempts hold of it": `
		SELECT format('%s: %s, and they hold %s', b.name, b.reserved, l.held) FROM funds b,
			LATERAL (SELECT coalesce(sum(takes(reserved, b.dimension)), 0) AS held FROM leases WHERE b.id = ANY (budgets)) AS l WHERE b.reserved <> l.held`,
	"escrow are of room that is there": `
		SELECT format('%s: %s of %s', b.name, a.escrow, b.hard - b.used - b.reserved) FROM funds b,
			LATERAL (SELECT coalesce(sum(escrow), 0) AS escrow, coalesce(min(escrow), 0) AS least FROM budget_shards WHERE budget = b.id) AS a
		WHERE a.least < 0 OR a.escrow > greatest(0, b.hard - b.used - b.reserved)`,
	"a claim that counts against a quota is an attempt": `
		SELECT format('%s/%s', u.task, u.attempt) FROM quota_uses u WHERE NOT EXISTS (SELECT FROM attempts a WHERE a.task = u.task AND a.number = u.attempt)`,
	"tallies count what stands anywhere but in leases, and what has ended": `
		SELECT format('%s %s %s: tallied %s, counted %s', workspace, lane, what, tallied, found)
		FROM (SELECT workspace, lane, what, sum(n) AS tallied FROM counted GROUP BY 1, 2, 3) AS y
		FULL JOIN (SELECT workspace, lane, what, count(*) AS found FROM (
			SELECT p.workspace, t.lane, p.name AS what FROM places p JOIN tasks t ON t.id = p.task WHERE p.name <> 'leases'
			UNION ALL SELECT workspace, lane, state::text FROM tasks WHERE is_terminal(state)) AS x GROUP BY 1, 2, 3) AS c USING (workspace, lane, what)
		WHERE coalesce(tallied, 0) <> coalesce(found, 0)`,
	"a place, an attempt and a class say of a task's lane and phase what the task says": `
		SELECT format('%s: %s %s, %s %s in %s', t.id, t.lane, t.phase, x.lane, x.phase, x.name) FROM (
			SELECT task, lane, phase, 'ready' AS name FROM ready UNION ALL SELECT task, lane, phase, 'due' FROM due UNION ALL SELECT task, lane, phase, 'parked' FROM parked
			UNION ALL SELECT task, lane, phase, 'ended' FROM ended
			UNION ALL SELECT task, lane, NULL, 'leases' FROM leases UNION ALL SELECT e.id, c.lane, NULL, 'classes' FROM tasks e JOIN classes c ON c.id = e.class
		) AS x JOIN tasks t ON t.id = x.task WHERE x.lane <> t.lane OR x.phase <> t.phase`,
	"a task that has ended stands among the ended ones, and one that waits does not": `
		SELECT format('%s is %s, and %s rows say so', t.id, t.state, x.n) FROM tasks t, LATERAL (
			SELECT count(*) AS n, min(state) AS state, min(at) AS at FROM ended WHERE task = t.id) AS x
		WHERE CASE WHEN is_terminal(t.state) THEN (x.n, x.state, x.at) IS DISTINCT FROM (1, t.state::text, t.ended_at) ELSE x.n > 0 OR t.last_outcome IS NOT NULL END`,
	"the audit tells of every creation once": `
		SELECT format('%s: %s rows', t.id, a.n) FROM tasks t, LATERAL (SELECT count(*) AS n FROM told WHERE task = t.id AND action = 'task.queued' AND why = '') AS a WHERE a.n <> 1`,
	"the audit tells of every claim once": `
		SELECT format('%s/%s: %s rows', a.task, a.numbers, x.n) FROM (
			SELECT task, claim, owner, workspace, array_agg(number) AS numbers, count(*) AS n FROM attempts GROUP BY 1, 2, 3, 4) AS a, LATERAL (
			SELECT count(*) AS n FROM told WHERE task = a.task AND action = 'task.claimed' AND (object = a.claim::text OR substring(why FROM '^attempt ([0-9]+)')::int = ANY (a.numbers))
				AND a.owner IN (actor, substring(why FROM ', for (.*)')) AND workspace = a.workspace) AS x WHERE x.n <> a.n`,
	"the audit tells of every attempt's end once": `
		SELECT format('%s/%s %s: %s rows', a.task, a.number, a.outcome, x.n) FROM (
			SELECT task, claim, outcome, min(number) AS number, array_agg(format('attempt %s %s', number, outcome)) AS names, count(*) AS n FROM attempts WHERE ended_at IS NOT NULL GROUP BY task, claim, outcome) AS a, LATERAL (
			SELECT count(*) AS n FROM told WHERE task = a.task AND (why = ANY (a.names) OR object = a.claim::text AND why = a.outcome)) AS x WHERE x.n <> a.n`,
	"the audit tells of every move that no worker made": `
		SELECT format('%s: epoch %s after %s attempts, %s moves', t.id, t.epoch, t.attempt, x.n) FROM standing t JOIN classes c ON c.id = t.class AND c.kind = 'card', LATERAL (
			SELECT count(*) AS n FROM told m WHERE m.task = t.id AND NOT m.many AND m.action IN ('operator.unblocked', 'task.unblocked', 'operator.retried',
				'operator.completed', 'operator.failed', 'operator.released', 'operator.blocked', 'operator.cancelled', 'task.cancelled', 'task.expired')) AS x
		WHERE t.epoch <> t.attempt + x.n`,
	"the audit tells of every retry by hand": `
		SELECT format('%s: %s, and %s rows', t.id, t.replays, x.n) FROM tasks t, LATERAL (SELECT count(*) AS n FROM told WHERE task = t.id AND action = 'operator.retried') AS x
		WHERE t.replays <> x.n`,
}

const invariantTables = `WITH told AS MATERIALIZED (
		SELECT a.xmin AS tx, a.actor, a.action, a.object, a.why, a.workspace, a.tasks IS NOT NULL AS many, x.task
		FROM audit a, LATERAL (SELECT unnest(a.tasks) AS task UNION ALL SELECT a.object::uuid WHERE a.tasks IS NULL AND a.object ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$') AS x
	), places AS (
		SELECT task, workspace, 'ready' AS name, NULL::timestamptz AS at FROM ready UNION ALL SELECT task, workspace, 'due', at FROM due
		UNION ALL SELECT task, workspace, why, NULL FROM parked UNION ALL SELECT task, workspace, 'leases', NULL FROM leases
	) `

// broken lists what breaks an invariant in the database at url. It is one
// statement, so it may run beside others: it sees none of them half done.
func broken(ctx context.Context, url string) ([]string, error) {
	conn, err := pgx.Connect(ctx, pgtest.Admin(url)) // the owner, whom no row is hidden from
	if err != nil {
		return nil, err
	}
	defer conn.Close(ctx)
	var parts []string
	var rules []any
	for rule, sql := range invariants {
		rules = append(rules, rule)
		parts = append(parts, fmt.Sprintf(`(SELECT $%d || ': ' || x.what FROM (%s) AS x (what) LIMIT 3)`, len(rules), sql))
	}
	rows, err := conn.Query(ctx, invariantTables+strings.Join(parts, "\nUNION ALL\n"), rules...)
	if err != nil {
		return nil, err
	}
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	slices.Sort(list)
	return list, err
}

// requireInvariants fails the test when the database is not as it must always be.
func requireInvariants(t require.TestingT, url string) {
	list, err := broken(context.Background(), url)
	require.NoError(t, err)
	require.Empty(t, list, "the backlog is inconsistent")
}

// Every invariant notices what breaks it: one that never fails guards nothing.
func TestInvariantsNotice(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	b := boardOf(t, s, backlog.MainWorkspace)
	five := 5
	require.NoError(t, b.SetBudget(t.Context(), backlog.Budget{Name: "all", Scope: "workspace", Dimension: "usd", Hard: 9 * backlog.Unit}))
	require.NoError(t, b.SetQuota(t.Context(), backlog.Quota{Name: "few", Scope: "workspace", Concurrent: &five}))
	spend := map[string]backlog.Amount{"usd": backlog.Unit}
	create(t, b, backlog.TaskSpec{Key: "free", Title: "x"}, backlog.TaskSpec{Key: "done", Title: "x"}, backlog.TaskSpec{Key: "held", Title: "x", Priority: 9, Estimate: spend},
		backlog.TaskSpec{Key: "after", Title: "x", DependsOn: []string{"free"}}, backlog.TaskSpec{Key: "next", Title: "x", DependsOn: []string{"done"}},
		backlog.TaskSpec{Key: "shut", Title: "x"}, backlog.TaskSpec{Key: "twice", Title: "x", Priority: 8})
	twice := claimCards(t, b, func(c *backlog.ClaimTerms) { c.Task = "twice" })[0]
	_, err := b.Release(t.Context(), backlog.Act{Fence: &twice.Fence})
	require.NoError(t, err)
	claimCards(t, b, func(c *backlog.ClaimTerms) { c.Task = "twice" })
	claimCards(t, b, func(c *backlog.ClaimTerms) { c.Task = "held" })
	done := claimCards(t, b, func(c *backlog.ClaimTerms) { c.Task = "done" })[0]
	_, err = b.Complete(t.Context(), backlog.Act{Fence: &done.Fence})
	require.NoError(t, err)
	_, err = b.Block(t.Context(), backlog.Act{Task: "shut"})
	require.NoError(t, err)
	requireInvariants(t, s.URL)

	noticed := map[string]bool{}
	id := func(key string) string { return `(SELECT id FROM tasks WHERE key = '` + key + `')` }
	for sql, rule := range map[string]string{
		`DELETE FROM ready WHERE task = ` + id("free"):                                                              "stands in exactly one place",
		`INSERT INTO parked (task, workspace, lane, why) VALUES (` + id("done") + `, 'main', 'default', 'blocked')`: "one that has in none",
		`INSERT INTO questions (id, workspace, task, attempt, key, question, options, fallback, data, deadline) SELECT id, 'main', id, 1, 'k', 'which?', '{}', '', '', now() FROM tasks WHERE key = 'done'`: "nobody waits for an answer",
		`UPDATE parked SET workspace = 'other'`:                                                                            "tasks that exist, of its workspace",
		`UPDATE parked SET why = 'deps' WHERE why = 'blocked'`:                                                             "place fits the state",
		`UPDATE tasks SET not_before = now() + interval '1 hour' WHERE key = 'free'`:                                       "place fits the state",
		`UPDATE ready SET rank = rank + 1`:                                                                                 "ready says of a task",
		`UPDATE ready SET attempt = attempt + 1`:                                                                           "ready says of a task",
		`UPDATE parked SET input = true WHERE why = 'deps'`:                                                                "found by them",
		`UPDATE tasks SET unmet = 2 WHERE key = 'after'`:                                                                   "unmet counts",
		`UPDATE dependencies SET met = NOT met`:                                                                            "an edge is met",
		`UPDATE dependencies SET workspace = 'other'`:                                                                      "stays within its workspace",
		`UPDATE leases SET epoch = epoch - 1`:                                                                              "a lease is the attempt behind",
		`DELETE FROM ended_attempts WHERE task = ` + id("twice"):                                                           "without a gap",
		`UPDATE leases SET attempt = 1 WHERE task = ` + id("twice"):                                                        "without a gap",
		`UPDATE ended_attempts SET epoch = 9 WHERE task = ` + id("twice"):                                                  "epochs of attempts",
		`UPDATE ended_attempts SET outcome = 'succeeded' WHERE task = ` + id("twice"):                                      "one success at most",
		`UPDATE tasks SET retries = 1 WHERE key = 'free'`:                                                                  "no more retries",
		`UPDATE budget_shards SET reserved = reserved - 1`:                                                                 "a budget has reserved",
		`UPDATE budget_shards SET escrow = used + reserved + (SELECT max(hard) FROM budgets)`:                              "room that is there",
		`INSERT INTO quota_uses SELECT id, ` + id("free") + `, 7, 'main' FROM quotas`:                                      "counts against a quota",
		`UPDATE tallies SET n = n + 1`:                                                                                     "tallies count",
		`UPDATE ready SET lane = 'other'`:                                                                                  "say of a task's lane",
		`UPDATE ready SET phase = 'other'`:                                                                                 "say of a task's lane and phase",
		`UPDATE ended SET state = 'failed'`:                                                                                "among the ended ones",
		`INSERT INTO audit (workspace, actor, action, tasks) SELECT 'main', 'x', 'task.queued', ARRAY[` + id("free") + `]`: "every creation once",
		`UPDATE leases SET owner = 'nobody'`:                                                                               "every claim once",
		`UPDATE tasks SET last_outcome = 'failed' WHERE key = 'done'`:                                                      "every attempt's end once",
		`UPDATE tasks SET epoch = epoch + 1 WHERE key = 'shut'`:                                                            "every move that no worker made",
		`UPDATE tasks SET replays = 1 WHERE key = 'free'`:                                                                  "every retry by hand",
	} {
		tx := begin(t, s.URL)
		_, err := tx.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
		var found []string
		for name, query := range invariants {
			if !strings.Contains(name, rule) {
				continue
			}
			noticed[name] = true
			rows, err := tx.Query(t.Context(), invariantTables+query)
			require.NoError(t, err)
			list, err := pgx.CollectRows(rows, pgx.RowTo[string])
			require.NoError(t, err)
			found = append(found, list...)
		}
		require.NotEmpty(t, found, "%s\nmust break: %s", sql, rule)
		require.NoError(t, tx.Rollback(t.Context()))
	}
	require.Len(t, noticed, len(invariants))
}

// begin opens a transaction as the owner of the tables.
func begin(t testing.TB, url string) pgx.Tx {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), pgtest.Admin(url))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	return tx
}
