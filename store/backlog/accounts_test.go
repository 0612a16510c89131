package backlog_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// A claim looks up what the accounts of its classes have met, however many others have met a limit.
func TestAClaimReadsTheLimitsOfItsAccounts(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	create(t, boardOf(t, s, backlog.MainWorkspace), backlog.TaskSpec{Title: "t", Account: "account-7"}, backlog.TaskSpec{Title: "t", Account: "other"})
	admin := owner(t, s.URL)
	_, err := admin.Exec(t.Context(), `INSERT INTO account_limits (workspace, account, until, task) SELECT 'main', 'account-' || n, now() + interval '1 hour', gen_random_uuid() FROM generate_series(1, 1000) AS n; ANALYZE account_limits`)
	require.NoError(t, err)
	tx, err := admin.Begin(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback(t.Context())) }()
	var bound string
	var read int

	require.NoError(t, tx.QueryRow(t.Context(), `SELECT string_agg(name, ' ') FROM bindings('main', '', ARRAY (SELECT id FROM classes)) WHERE what = 'limit'`).Scan(&bound))

	require.Equal(t, "account-7", bound)
	require.NoError(t, tx.QueryRow(t.Context(), `SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = 'account_limits'`).Scan(&read))
	require.LessOrEqual(t, read, 2)
}

// An agent that meets a limit while it waits for an answer has met it: its account waits, and so does the agent, whoever answers.
func TestAnAgentThatAsksMeetsTheLimitOfItsAccount(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ before, after string }{
		"answered":             {before: `SELECT`},
		"its time is over":     {before: `UPDATE questions SET asked_at = now() - interval '1 hour', deadline = now() - interval '1 second'`},
		"the clock was ahead":  {before: `UPDATE tasks SET not_before = not_before + interval '1 day', updated_at = updated_at + interval '1 day' WHERE state = 'awaiting_input'`},
		"the wait is over now": {before: `UPDATE tasks SET not_before = now() WHERE state = 'awaiting_input'`, after: "it goes on"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSide(t)
			here := scene{t, s, boardOf(t, s, backlog.MainWorkspace)}
			s.Meet(t, store.Obeys)
			first, sibling := here.request(), here.request()
			first.Account, sibling.Account = "claude", "claude"
			here.asks(first)
			f := here.claim()[0].Fence
			_, err := s.backlog.Record(t.Context(), []backlog.Progress{{Start: &backlog.Start{Fence: f, Pid: 1, BootID: "b"}}})
			require.NoError(t, err)
			asks := inquiry
			asks.What.Default = "deny"
			q, err := s.backlog.Ask(t.Context(), f, asks)
			require.NoError(t, err)
			here.ends(f, commands.Parked, "")
			require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM tasks WHERE id = $1 AND state = 'awaiting_input'`, f.Task))

			require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM account_limits a JOIN tasks t ON t.id = a.task WHERE a.account = 'claude' AND a.until = t.not_before AND a.until > now() + interval '2 minutes'`))

			here.asks(sibling)
			require.Empty(t, here.claim(), "its account waits")
			here.exec(tt.before)
			swept, err := s.backlog.Sweep(t.Context(), 0)
			require.NoError(t, err)
			if swept.Lapsed == 0 {
				require.NoError(t, s.backlog.AnswerHere(t.Context(), commands.Answer{Task: f.Task, Question: q.ID, Answer: "allow", By: "ann"}))
			}
			here.exec(`DELETE FROM account_limits`)
			var claimed []string
			for _, c := range here.claim() {
				claimed = append(claimed, c.Fence.Task)
			}

			if tt.after != "" {
				require.ElementsMatch(t, []string{f.Task, sibling.Spawn.Task}, claimed)
				return
			}
			require.Equal(t, []string{sibling.Spawn.Task}, claimed)
			require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM due d JOIN tasks t ON t.id = d.task WHERE t.id = $1 AND t.reason = 'limit' AND d.at = t.not_before AND d.at BETWEEN now() + interval '2 minutes' AND now() + interval '6 minutes'`, f.Task))
		})
	}
}
