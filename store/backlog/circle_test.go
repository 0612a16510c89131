package backlog_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// passing is two acts of which the first waits for a row, and the other one for
// what the first holds or wants. The task early waits for late,
// which is claimed, and for one that has failed.
type passing struct {
	gate  string // locks the row
	first func(*crossing) error
	other func(*crossing) error
}

type crossing struct {
	*testing.T
	*side
	b     *backlog.Workspace
	early string // ids
	late  string
	fence backlog.Fence // of late
	other backlog.Fence // of a task that nobody waits for
}

const (
	firstShard = `SELECT FROM budget_shards WHERE budget = (SELECT min(id) FROM budgets) FOR UPDATE`
	hourShard  = `SELECT FROM budget_shards WHERE budget = (SELECT id FROM budgets WHERE name = 'hour') FOR UPDATE`
	dayShard   = `SELECT FROM budget_shards WHERE budget = (SELECT id FROM budgets WHERE name = 'day') FOR UPDATE`
	earlyTask  = `SELECT FROM tasks WHERE key = 'early' FOR UPDATE`
	lateTask   = `SELECT FROM tasks WHERE key = 'late' FOR UPDATE`
)

var passings = map[string]passing{
	"a completion, and a link to what completes": {lateTask,
		func(c *crossing) error { return failure(c.b.Complete(c.Context(), backlog.Act{Fence: &c.fence})) }, (*crossing).link},
	"completions, and a link to what completes": {lateTask, (*crossing).completeMany, (*crossing).link},
	"a completion takes its turn at what waits for it": {earlyTask,
		func(c *crossing) error { return failure(c.b.Complete(c.Context(), backlog.Act{Fence: &c.fence})) }, (*crossing).link},
	"completions take their turn at what waits for them": {earlyTask, (*crossing).completeMany, (*crossing).link},
	"a report of the spoke, and a link to what ends": {lateTask,
		func(c *crossing) error {
			held, err := c.backlog.Record(c.Context(), []backlog.Progress{{End: &backlog.End{Fence: c.fence, Outcome: commands.Outcome("succeeded")}}})
			return counted(len(held), 1, err)
		}, (*crossing).link},
	"a completion of what others wait for, and a report of the same attempt": {lateTask,
		func(c *crossing) error { return failure(c.b.Complete(c.Context(), backlog.Act{Fence: &c.fence})) },
		func(c *crossing) error {
			held, err := c.backlog.Record(c.Context(), []backlog.Progress{{End: &backlog.End{Fence: c.fence, Outcome: commands.Outcome("succeeded")}}})
			return counted(len(held), 1, err)
		}},
	"the end by an operator, and a task that is to wait for both": {lateTask,
		func(c *crossing) error { return failure(c.b.Complete(c.Context(), backlog.Act{Task: c.late})) },
		func(c *crossing) error {
			_, err := c.b.Create(c.Context(), backlog.TaskSpec{Title: "t", DependsOn: []string{c.early, c.late}})
			return err
		}},
	"a retry, and a link to what is retried": {`SELECT FROM tasks WHERE key = 'failed' FOR UPDATE`,
		func(c *crossing) error { return failure(c.b.Retry(c.Context(), backlog.Act{Task: "failed"})) },
		func(c *crossing) error { return c.b.Link(c.Context(), c.early, "failed") }},
	"an end, and another one with usage": {firstShard, (*crossing).completeOther,
		func(c *crossing) error {
			return failure(c.b.Complete(c.Context(), backlog.Act{Fence: &c.fence, Usage: tokens(1)}))
		}},
	"an end, and a claim that takes an escrow back": {firstShard, (*crossing).completeOther, (*crossing).claim},
	"an end, and the removal of its rolling budget": {hourShard, (*crossing).completeOther,
		func(c *crossing) error { return c.b.RemoveBudget(c.Context(), "hour", "test") }},
	"an end, and a change of its rolling budget": {hourShard, (*crossing).completeOther,
		func(c *crossing) error { return c.b.SetBudget(c.Context(), hour) }},
	"a sweep of what has left the windows, and a budget that starts anew": {dayShard,
		func(c *crossing) error { _, err := c.backlog.Sweep(c.Context(), time.Hour); return err },
		func(c *crossing) error { _, err := c.b.ResetBudget(c.Context(), "hour", "test"); return err }},
	"usage, and a budget for the task that reports it": {`SELECT FROM leases FOR UPDATE`,
		func(c *crossing) error { return c.b.Report(c.Context(), c.fence, "r", tokens(9)) },
		func(c *crossing) error {
			return c.b.SetBudget(c.Context(), backlog.Budget{Name: "own", Scope: "task", Target: c.late, Dimension: "usd", Hard: backlog.Unit})
		}},
}

var hour = backlog.Budget{Name: "hour", Scope: "workspace", Dimension: "tokens", Hard: 100_000 * backlog.Unit, Rolling: backlog.Seconds(time.Hour)}

func (c *crossing) completeMany() error {
	held, err := c.b.CompleteMany(c.Context(), []backlog.Fence{c.fence})
	return counted(len(held), 1, err)
}

func (c *crossing) completeOther() error {
	held, err := c.b.CompleteMany(c.Context(), []backlog.Fence{c.other})
	return counted(len(held), 1, err)
}

func (c *crossing) claim() error {
	list, err := c.b.Claim(c.Context(), backlog.ClaimTerms{Owner: "w"})
	return counted(len(list), 1, err)
}

func (c *crossing) link() error { return c.b.Link(c.Context(), c.early, c.late) }

// Two acts want the same rows at the worst moment. Each has its effect, and nobody
// is given up by the server.
func TestTwoWhoPassWaitInOneOrder(t *testing.T) {
	t.Parallel()
	for name, tt := range passings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := crossed(t)
			gate, watcher := owner(t, c.URL), owner(t, c.URL)
			waiting := func(n int) {
				eventually(t, fmt.Sprintf("%d wait", n), func() (ok bool) {
					require.NoError(t, watcher.QueryRow(t.Context(), `SELECT count(*) = $1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`, n).Scan(&ok))
					return ok
				})
			}
			held, err := gate.Begin(t.Context())
			require.NoError(t, err)
			_, err = held.Exec(t.Context(), tt.gate)
			require.NoError(t, err)
			errs := make(chan error, 2)
			go func() { errs <- tt.first(c) }()
			waiting(1)
			go func() { errs <- tt.other(c) }()
			waiting(2)

			require.NoError(t, held.Rollback(t.Context()))

			require.NoError(t, <-errs)
			require.NoError(t, <-errs)
			require.NoError(t, gate.Close(t.Context()))
			c.DB.Close()
			require.Zero(t, storetest.Deadlocks(t, watcher), "statements that the server gave up because they waited in a circle")
			requireInvariants(t, c.URL)
		})
	}
}

// crossed is the scene of a passing. All sessions have the same shard of budgets, as
// those of many processes may.
func crossed(t *testing.T) *crossing {
	c := &crossing{T: t, side: &side{Side: storetest.NewSide(t, 1, 2)}}
	c.backlog = backlog.Open(c.DB, nobodyAsks)
	c.b = boardOf(t, c.side, backlog.MainWorkspace)
	all := owner(t, c.URL)
	_, err := all.Exec(t.Context(), `CREATE OR REPLACE FUNCTION budget_shard() RETURNS int LANGUAGE sql STABLE AS $$ SELECT 1 $$`)
	require.NoError(t, err)
	require.NoError(t, all.Close(t.Context()))
	budget(t, c.b, backlog.Budget{Name: "starts", Scope: "workspace", Dimension: "spawns", Hard: 100 * backlog.Unit})
	budget(t, c.b, backlog.Budget{Name: "day", Scope: "workspace", Dimension: "tokens", Hard: 100_000 * backlog.Unit, Rolling: backlog.Seconds(24 * time.Hour)})
	budget(t, c.b, hour)
	budget(t, c.b, backlog.Budget{Name: "all", Scope: "workspace", Dimension: "tokens", Hard: 100_000 * backlog.Unit})
	require.NoError(t, c.b.SetQuota(t.Context(), backlog.Quota{Name: "few", Scope: "workspace", Concurrent: new(10)}))
	create(t, c.b, backlog.TaskSpec{Key: "spent", Title: "t", Estimate: tokens(1)})
	require.NoError(t, failure(c.b.Complete(t.Context(), backlog.Act{Fence: &claimCards(t, c.b, nil)[0].Fence, Usage: tokens(1)})))
	require.NoError(t, c.Exec(`UPDATE charges SET at = now() - interval '2 days'`))
	c.early = create(t, c.b, backlog.TaskSpec{Key: "early", Title: "t"})[0].ID
	c.late = create(t, c.b, backlog.TaskSpec{Key: "late", Title: "t", Estimate: tokens(1)})[0].ID
	require.Less(t, c.early, c.late)
	create(t, c.b, backlog.TaskSpec{Key: "failed", Title: "t"})
	require.NoError(t, c.link())
	require.NoError(t, c.b.Link(t.Context(), c.early, "failed"))
	require.NoError(t, failure(c.b.Fail(t.Context(), backlog.Act{Task: "failed"})))
	create(t, c.b, backlog.TaskSpec{Key: "other", Title: "t", Estimate: tokens(1)})
	list := claimCards(t, c.b, nil)
	require.Equal(t, []string{"late", "other"}, keys(list))
	c.fence, c.other = list[0].Fence, list[1].Fence
	create(t, c.b, backlog.TaskSpec{Key: "next", Title: "t", Estimate: tokens(1)})
	require.NoError(t, c.Exec(`UPDATE budget_shards s SET used = used + l.room - l.escrow FROM limits l WHERE l.what = 'budget' AND l.name = 'all' AND s.budget = l.id`), "only escrow is left of it")
	return c
}
