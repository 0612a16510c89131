package meshtest

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// paidBy orders a task whose limits are those of an account at its spoke.
func (p *pair) paidBy(t *testing.T, account string) string {
	t.Helper()
	task := p.Order(t, nil)
	batch := p.Spoke.Read(t, p.Hub.Due(t)...)
	for _, m := range batch {
		m.Account = account
	}
	p.takeSome(t, batch)
	return task
}

// When an agent has met a limit of its provider, all of the same account wait until its time, and nobody else does.
func TestAnAccountThatMetItsLimitWaits(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	first, second, other, none := p.paidBy(t, "claude"), p.paidBy(t, "claude"), p.paidBy(t, "codex"), p.paidBy(t, "")
	c := p.claim(t, 1)[0]
	require.Equal(t, first, c.Fence.Task)
	p.start(t, c)
	require.True(t, p.end(t, c.Fence, commands.Parked))

	claimed := p.claim(t, 10)

	require.ElementsMatch(t, []string{other, none}, tasksOf(claimed))
	require.Equal(t, 1, p.Spoke.Count(t, `SELECT count(*) FROM account_limits a JOIN due d ON d.task = a.task AND d.at = a.until WHERE a.account = 'claude' AND a.task = $1`, first))
	ws, err := p.backlog.Workspace(backlog.MainWorkspace, "test")
	require.NoError(t, err)
	why, err := ws.Why(t.Context(), second)
	require.NoError(t, err)
	require.Len(t, why.Reasons, 1)
	require.Equal(t, commands.CauseLimit, why.Reasons[0].Code)
	require.Equal(t, "account claude has met a limit of its provider; its tasks wait", why.Reasons[0].Text)
	require.WithinRange(t, *why.Reasons[0].Until, time.Now().Add(2*time.Minute), time.Now().Add(6*time.Minute))
	waits, err := ws.Show(t.Context(), second)
	require.NoError(t, err)
	require.Equal(t, backlog.AccountLimited, waits.Eligibility)
	require.NoError(t, p.Spoke.Exec(`UPDATE account_limits SET until = clock_timestamp()`))
	require.Equal(t, []string{second}, tasksOf(p.claim(t, 10)), "its time has come")
	swept, err := p.backlog.Sweep(t.Context(), time.Second)
	require.NoError(t, err)
	require.Equal(t, int64(1), swept.Lifted)
	require.Zero(t, p.Spoke.Count(t, `SELECT count(*) FROM account_limits`))
}

// What a clock that was ahead made wait waits for its time, and not for as much longer as the clock was ahead; who asked for it is told.
func TestALimitThatAnEarlyClockHasSetIsBounded(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	task := p.paidBy(t, "claude")
	c := p.claim(t, 1)[0]
	p.start(t, c)
	require.True(t, p.end(t, c.Fence, commands.Parked))
	p.toHub(t)
	named := p.paidBy(t, "") // for a moment that somebody has named
	require.NoError(t, p.Spoke.Exec(`WITH gone AS (DELETE FROM ready WHERE task = $1 RETURNING task, workspace, lane) INSERT INTO due (task, workspace, lane, at) SELECT task, workspace, lane, now() + interval '1 day' FROM gone`, named))
	require.NoError(t, p.Spoke.Exec(`UPDATE tasks SET not_before = not_before + interval '1 hour' WHERE not_before IS NOT NULL`))
	require.NoError(t, p.Spoke.Exec(`UPDATE due SET at = at + interval '1 hour', made_at = made_at + interval '1 hour'`))
	require.NoError(t, p.Spoke.Exec(`UPDATE account_limits SET until = until + interval '1 hour', since = since + interval '1 hour'`))

	swept, err := p.backlog.Sweep(t.Context(), time.Hour)

	require.NoError(t, err)
	require.Less(t, swept.Next, 6*time.Minute)
	require.Equal(t, 1, p.Spoke.Count(t, `SELECT count(*) FROM account_limits a JOIN due d ON d.task = a.task AND d.at = a.until JOIN tasks t ON t.id = d.task AND t.not_before = d.at
		WHERE a.until BETWEEN now() + interval '2 minutes' AND now() + interval '5 minutes' AND a.since <= now() AND d.made_at <= now()`))
	require.Equal(t, 1, p.Spoke.Count(t, `SELECT count(*) FROM due WHERE task = $1 AND at > now() + interval '24 hours'`, named))
	p.toHub(t)
	ends := p.Mirror(t, task).Attempts
	require.Len(t, ends, 1)
	require.Equal(t, 1, p.Spoke.Count(t, `SELECT count(*) FROM tasks WHERE id = $1 AND floor(extract(epoch FROM not_before) * 1000) = $2`, task, ends[0].Next), "its hub is told anew")
}

// A limit of an account is the longest of those that its agents met.
func TestALaterLimitOfAnAccountCounts(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.paidBy(t, "claude")
	p.paidBy(t, "claude")
	claimed := p.claim(t, 2)
	require.NoError(t, p.Spoke.Exec(`UPDATE tasks SET parks = 5 WHERE id = $1`, claimed[0].Fence.Task)) // its wait is ten times as long

	for _, c := range claimed {
		p.start(t, c)
		require.True(t, p.end(t, c.Fence, commands.Parked))
	}

	require.Equal(t, 1, p.Spoke.Count(t, `SELECT count(*) FROM account_limits WHERE until = (SELECT max(at) FROM due)`))
	swept, err := p.backlog.Sweep(t.Context(), time.Hour)
	require.NoError(t, err)
	require.Zero(t, swept.Lifted)
	require.Less(t, swept.Next, 6*time.Minute)
}

func tasksOf(list []backlog.Claimed) (ids []string) {
	for _, c := range list {
		ids = append(ids, c.Fence.Task)
	}
	return ids
}

// The host says in its policy which words of a program mean a limit, and whose it is.
func TestWordsOfALimitParkAnAgentAndItsAccount(t *testing.T) {
	t.Parallel()
	m := Plan{Policy: Loose(`version: 1
runtimes: [exec]
commands:
  - {run: "sh -c **", account: claude, limit_patterns: ["(?i)usage limit reached"]}
  - "true"
`)}.Start(t, "attic")
	s := m.Spokes["attic"]
	ran := filepath.Join(t.TempDir(), "ran")
	limited := m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeExec, Argv: []string{"sh", "-c", `[ -e "$0" ] && exit 0; touch "$0"; echo "Usage limit reached" >&2; exit 1`, ran}}})
	Await(t, "that it is parked", func() bool { return m.Agent(t, limited).Reason == commands.Limit })

	waits := m.Spawn(t, "attic", "sh", "-c", "exit 0")
	beside := m.Wait(t, m.Spawn(t, "attic", "true"))

	require.Equal(t, commands.Completed, beside.State)
	require.Equal(t, commands.Queued, m.Agent(t, waits).State)
	var change policy.Change
	s.Do(t, "POST", "/api/v1/policy/reload", nil, &change)
	require.Equal(t, []string{"claude"}, change.Lifted)
	require.Equal(t, commands.Completed, m.Wait(t, waits).State, "its account goes on before its time")
	require.Equal(t, commands.Queued, m.Agent(t, limited).State, "what met the limit waits as long as it does")
	m.Stop(t, "attic")
	s.Exec(t, `UPDATE due SET at = clock_timestamp()`)
	m.Start(t, "attic")
	require.Equal(t, commands.Completed, m.Wait(t, limited).State)
	m.Check(t)
}
