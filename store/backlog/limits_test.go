package backlog_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

func tokens(n int) map[string]backlog.Amount {
	return map[string]backlog.Amount{"tokens": backlog.Amount(n) * backlog.Unit}
}

func budget(t testing.TB, b *backlog.Workspace, g backlog.Budget) {
	t.Helper()
	require.NoError(t, b.SetBudget(t.Context(), g))
}

func left(t testing.TB, b *backlog.Workspace, name string) (used, reserved backlog.Amount) {
	t.Helper()
	list, err := b.Budgets(t.Context())
	require.NoError(t, err)
	for _, g := range list {
		if g.Name == name {
			return g.Used / backlog.Unit, g.Reserved / backlog.Unit
		}
	}
	t.Fatalf("no budget %s", name)
	return 0, 0
}

func stages(t testing.TB, b *backlog.Workspace, ref string) (list []string) {
	t.Helper()
	w, err := b.Why(t.Context(), ref)
	require.NoError(t, err)
	for _, r := range w.Reasons {
		list = append(list, string(r.Code))
	}
	return list
}

func eligibility(t testing.TB, b *backlog.Workspace, ref string) backlog.Eligibility {
	t.Helper()
	task, err := b.Show(t.Context(), ref)
	require.NoError(t, err)
	return task.Eligibility
}

func TestABudgetReservesSettlesAndReleases(t *testing.T) {
	t.Parallel()
	b := board(t)
	budget(t, b, backlog.Budget{Name: "day", Scope: "workspace", Dimension: "tokens", Hard: 100 * backlog.Unit})
	create(t, b, backlog.TaskSpec{Key: "big", Title: "big", Priority: 9, Estimate: tokens(80)}, backlog.TaskSpec{Key: "next", Title: "next", Priority: 5, Estimate: tokens(50)},
		backlog.TaskSpec{Key: "small", Title: "small", Estimate: tokens(20)}, backlog.TaskSpec{Key: "free", Title: "free"})

	first := claimCards(t, b, nil)
	require.Equal(t, []string{"big", "small"}, keys(first), "what does not fit stands in nobody's way; a spent budget lets nothing through")
	used, reserved := left(t, b, "day")
	require.Equal(t, []backlog.Amount{0, 100}, []backlog.Amount{used, reserved})
	require.Equal(t, backlog.OverBudget, eligibility(t, b, "next"))
	require.Contains(t, stages(t, b, "next"), "budget")
	_, err := b.Claim(t.Context(), backlog.ClaimTerms{Owner: "w", Task: "next"})
	require.Equal(t, commands.OverBudget, commands.CodeOf(err), "%v", err)

	_, err = b.Complete(t.Context(), backlog.Act{Fence: &first[0].Fence, Usage: tokens(30)})
	require.NoError(t, err)
	_, err = b.Complete(t.Context(), backlog.Act{Fence: &first[0].Fence, Usage: tokens(30)})
	require.NoError(t, err, "said twice, counted once")
	used, reserved = left(t, b, "day")
	require.Equal(t, []backlog.Amount{30, 20}, []backlog.Amount{used, reserved}, "settled by what was measured")
	require.Equal(t, []string{"next"}, keys(claimCards(t, b, nil)), "50 of the 50 that are left")
	_, err = b.Release(t.Context(), backlog.Act{Fence: &first[1].Fence})
	require.NoError(t, err)
	used, reserved = left(t, b, "day")
	require.Equal(t, []backlog.Amount{30, 50}, []backlog.Amount{used, reserved}, "given back unspent")
}

// A claim that holds the limits there are meets no new one before it ends.
func TestANewLimitWaitsForWhoHoldsTheOthers(t *testing.T) {
	t.Parallel()
	n := 1
	for table, set := range map[string]func(context.Context, *backlog.Workspace) error{
		"budgets": func(ctx context.Context, b *backlog.Workspace) error {
			return b.SetBudget(ctx, backlog.Budget{Name: "new", Scope: "workspace", Dimension: "tokens", Hard: backlog.Unit})
		},
		"quotas": func(ctx context.Context, b *backlog.Workspace) error {
			return b.SetQuota(ctx, backlog.Quota{Name: "new", Scope: "workspace", Concurrent: &n})
		},
	} {
		t.Run(table, func(t *testing.T) {
			t.Parallel()
			s := newSide(t)
			b := boardOf(t, s, backlog.MainWorkspace)
			claim := begin(t, s.URL)
			_, err := claim.Exec(t.Context(), `SELECT FROM `+table+` ORDER BY id FOR NO KEY UPDATE`) // as a claim does
			require.NoError(t, err)

			short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			require.ErrorIs(t, set(short, b), context.DeadlineExceeded)
			require.NoError(t, claim.Rollback(t.Context()))
			require.NoError(t, set(t.Context(), b))
		})
	}
}

// A claim that looks twice because of a budget is noted all the same.
func TestWhyKnowsWhoClaimed(t *testing.T) {
	t.Parallel()
	b := board(t)
	budget(t, b, backlog.Budget{Name: "day", Scope: "workspace", Dimension: "tokens", Hard: 15 * backlog.Unit})
	create(t, b, backlog.TaskSpec{Title: "x", Estimate: tokens(10)}, backlog.TaskSpec{Key: "waits", Title: "y", Estimate: tokens(10)})

	require.Len(t, claimCards(t, b, nil), 1)

	w, err := b.Why(t.Context(), "waits")
	require.NoError(t, err)
	require.Len(t, w.By, 1)
	require.Equal(t, "worker-1", w.By[0].Owner)
}

// While there is plenty, claims reserve from escrow. Whatever leaves less room
// takes them back, so that exactly what is left can be claimed.
func TestEscrowIsTakenBack(t *testing.T) {
	t.Parallel()
	for name, shrink := range map[string]func(*testing.T, *backlog.Workspace, backlog.Claimed){
		"a lower limit": func(t *testing.T, b *backlog.Workspace, _ backlog.Claimed) {
			budget(t, b, backlog.Budget{Name: "day", Scope: "workspace", Dimension: "tokens", Hard: 100 * backlog.Unit})
		},
		"usage beyond the estimate": func(t *testing.T, b *backlog.Workspace, c backlog.Claimed) {
			require.NoError(t, b.Report(t.Context(), c.Fence, "1", tokens(99_910)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSide(t)
			b := boardOf(t, s, backlog.MainWorkspace)
			budget(t, b, backlog.Budget{Name: "day", Scope: "workspace", Dimension: "tokens", Hard: 100_000 * backlog.Unit})
			for range 40 {
				create(t, b, backlog.TaskSpec{Title: "x", Estimate: tokens(10)})
			}
			one := func(c *backlog.ClaimTerms) { c.Limit = 1 }
			first := claimCards(t, b, one)[0]
			claimCards(t, b, one)
			require.Positive(t, s.Count(t, `SELECT (sum(escrow) / 1000000)::int FROM budget_shards`))

			shrink(t, b, first)

			require.Zero(t, s.Count(t, `SELECT sum(escrow)::int FROM budget_shards`))
			_, reserved := left(t, b, "day")
			room := 100_000 - 99_910
			if name == "a lower limit" {
				room = 100
			}
			n := (room - int(reserved)) / 10
			require.Len(t, claimCards(t, b, nil), n)
			require.Empty(t, claimCards(t, b, one))
			_, reserved = left(t, b, "day")
			require.EqualValues(t, room, reserved)
			requireInvariants(t, s.URL)
			_, err := b.GrantBudget(t.Context(), "day", 1000*backlog.Unit, "more")
			require.NoError(t, err)
			require.Len(t, claimCards(t, b, nil), 38-n)
		})
	}
}

func TestUsageIsCountedOnceAndNeverDropped(t *testing.T) {
	t.Parallel()
	b := board(t)
	budget(t, b, backlog.Budget{Name: "day", Scope: "workspace", Dimension: "tokens", Hard: 100 * backlog.Unit})
	create(t, b, backlog.TaskSpec{Key: "a", Title: "a", Estimate: tokens(10)}, backlog.TaskSpec{Key: "b", Title: "b", Estimate: tokens(10)}, backlog.TaskSpec{Key: "silent", Title: "s", Estimate: tokens(10)})
	list := claimCards(t, b, nil)
	require.Len(t, list, 3)

	for range 3 {
		require.NoError(t, b.Report(t.Context(), list[0].Fence, "turn 1", tokens(4)))
	}
	used, reserved := left(t, b, "day")
	require.Equal(t, []backlog.Amount{4, 26}, []backlog.Amount{used, reserved})
	require.NoError(t, b.Report(t.Context(), list[0].Fence, "turn 2", tokens(500)))
	used, reserved = left(t, b, "day")
	require.Equal(t, []backlog.Amount{504, 20}, []backlog.Amount{used, reserved}, "more than reserved, more than the hard limit, and recorded")
	_, err := b.Complete(t.Context(), backlog.Act{Fence: &list[0].Fence})
	require.NoError(t, err)
	_, err = b.Fail(t.Context(), backlog.Act{Fence: &list[1].Fence, Usage: tokens(1)})
	require.NoError(t, err)
	_, err = b.Complete(t.Context(), backlog.Act{Fence: &list[2].Fence})
	require.NoError(t, err)
	used, reserved = left(t, b, "day")
	require.Equal(t, []backlog.Amount{504 + 1 + 10, 0}, []backlog.Amount{used, reserved}, "who reports nothing is charged the estimate")
	require.Equal(t, commands.StaleAttempt, commands.CodeOf(b.Report(t.Context(), list[0].Fence, "late", tokens(1))))
	require.NoError(t, b.Report(t.Context(), list[0].Fence, "turn 1", tokens(4)), "a repeated report after the end is still the same report")
}

// A task without an estimate reserves one of spawns. What its usage settles of that, its
// end does not give back once more.
func TestAUsageOfSpawnsIsSettledOnce(t *testing.T) {
	t.Parallel()
	b := board(t)
	budget(t, b, backlog.Budget{Name: "day", Scope: "workspace", Dimension: "spawns", Hard: 9 * backlog.Unit})
	create(t, b, backlog.TaskSpec{Title: "t"})
	fence := claimCards(t, b, nil)[0].Fence
	require.NoError(t, b.Report(t.Context(), fence, "the start", map[string]backlog.Amount{"spawns": backlog.Unit}))
	used, reserved := left(t, b, "day")
	require.Equal(t, []backlog.Amount{1, 0}, []backlog.Amount{used, reserved})

	_, err := b.CompleteMany(t.Context(), []backlog.Fence{fence})

	require.NoError(t, err)
	used, reserved = left(t, b, "day")
	require.Equal(t, []backlog.Amount{1, 0}, []backlog.Amount{used, reserved})
}

// A batch may owe more than the escrow of its shard, where each of its tasks owes less.
func TestABatchThatOwesMoreThanItsEscrow(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	b := boardOf(t, s, backlog.MainWorkspace)
	budget(t, b, backlog.Budget{Name: "day", Scope: "workspace", Dimension: "tokens", Hard: 1000 * backlog.Unit})
	specs := make([]backlog.TaskSpec, 101)
	for i := range specs {
		specs[i] = backlog.TaskSpec{Title: "t", Estimate: tokens(1)}
	}
	create(t, b, specs...)
	require.Len(t, claimCards(t, b, func(c *backlog.ClaimTerms) { c.Limit = 1 }), 1)
	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM budget_shards WHERE escrow BETWEEN 2000000 AND 99000000`), "more than one task owes, less than a hundred")

	list := claimCards(t, b, func(c *backlog.ClaimTerms) { c.Limit = 100 })

	require.Len(t, list, 100)
}

func TestWhatASpentBudgetDoes(t *testing.T) {
	t.Parallel()
	soft := 5 * backlog.Unit
	tests := map[string]struct {
		budget backlog.Budget
		check  func(t *testing.T, s *side, b *backlog.Workspace)
	}{
		"queues": {backlog.Budget{}, func(t *testing.T, s *side, b *backlog.Workspace) {
			require.Equal(t, backlog.OverBudget, eligibility(t, b, "waits"))
			_, err := b.GrantBudget(t.Context(), "day", 10*backlog.Unit, "more")
			require.NoError(t, err)
			require.Equal(t, []string{"waits"}, keys(claimCards(t, b, nil)))
		}},
		"is reset by hand": {backlog.Budget{}, func(t *testing.T, s *side, b *backlog.Workspace) {
			_, err := b.Complete(t.Context(), backlog.Act{Task: "first"})
			require.NoError(t, err)
			require.Empty(t, claimCards(t, b, nil))
			_, err = b.ResetBudget(t.Context(), "day", "new day")
			require.NoError(t, err)
			require.Equal(t, []string{"waits"}, keys(claimCards(t, b, nil)))
		}},
		"resets at its time": {backlog.Budget{ResetsAt: new(time.Now().Add(time.Hour)), Every: backlog.Seconds(24 * time.Hour)}, func(t *testing.T, s *side, b *backlog.Workspace) {
			_, err := b.Complete(t.Context(), backlog.Act{Task: "first"})
			require.NoError(t, err)
			require.NoError(t, s.Exec(`UPDATE budgets SET resets_at = now() - interval '50 hours'`))
			swept, err := b.Sweep(t.Context())
			require.NoError(t, err)
			require.Equal(t, int64(1), swept.Limits)
			list, err := b.Budgets(t.Context())
			require.NoError(t, err)
			require.Zero(t, list[0].Used)
			require.InDelta(t, 22*time.Hour.Hours(), time.Until(*list[0].ResetsAt).Hours(), 0.1, "the next time is ahead, whole periods on")
			require.Equal(t, []string{"waits"}, keys(claimCards(t, b, nil)))
		}},
		"rolls": {backlog.Budget{Rolling: backlog.Seconds(time.Hour)}, func(t *testing.T, s *side, b *backlog.Workspace) {
			_, err := b.Complete(t.Context(), backlog.Act{Task: "first"})
			require.NoError(t, err)
			_, err = b.Sweep(t.Context())
			require.NoError(t, err)
			require.Empty(t, claimCards(t, b, nil))
			require.NoError(t, s.Exec(`UPDATE charges SET at = at - interval '1 hour'`))
			_, err = b.Sweep(t.Context())
			require.NoError(t, err)
			require.Equal(t, []string{"waits"}, keys(claimCards(t, b, nil)))
		}},
		"refuses":                       {backlog.Budget{OnHard: "refuse"}, refusesMore},
		"refuses in the whole instance": {backlog.Budget{OnHard: "refuse", Scope: "instance"}, refusesMore},
		"cancels": {backlog.Budget{OnHard: "cancel"}, func(t *testing.T, s *side, b *backlog.Workspace) {
			_, err := b.Sweep(t.Context())
			require.NoError(t, err)
			task, err := b.Show(t.Context(), "waits")
			require.NoError(t, err)
			require.Equal(t, commands.Cancelled, task.State)
			require.Equal(t, commands.BudgetExceeded, task.Reason)
		}},
		"downgrades": {backlog.Budget{OnHard: "downgrade", DowngradeTo: "cheap", Scope: "lane", Target: "default"}, func(t *testing.T, s *side, b *backlog.Workspace) {
			_, err := b.Sweep(t.Context())
			require.NoError(t, err)
			list := claimCards(t, b, nil)
			require.Equal(t, []string{"waits"}, keys(list))
			require.Equal(t, "cheap", list[0].Lane)
		}},
		"notes the soft limit once a window": {backlog.Budget{Soft: &soft}, func(t *testing.T, s *side, b *backlog.Workspace) {
			noted := func() int {
				for range 3 {
					_, err := b.Sweep(t.Context())
					require.NoError(t, err)
				}
				return s.Count(t, `SELECT count(*) FROM audit WHERE action = 'budget.soft_limit' AND object = 'day'`)
			}
			require.Equal(t, 1, noted())
			_, err := b.GrantBudget(t.Context(), "day", 10*backlog.Unit, "more")
			require.NoError(t, err)
			require.Equal(t, 1, noted(), "a grant moves the hard limit only")
			_, err = b.ResetBudget(t.Context(), "day", "new day")
			require.NoError(t, err)
			require.Equal(t, 2, noted(), "what is reserved is above it still")
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSide(t)
			b := boardOf(t, s, "main")
			create(t, b, backlog.TaskSpec{Key: "first", Title: "first", Priority: 1, Estimate: tokens(10)}, backlog.TaskSpec{Key: "waits", Title: "waits", Estimate: tokens(10)})
			g := tt.budget
			g.Name, g.Dimension, g.Hard = "day", "tokens", 10*backlog.Unit
			if g.Scope == "" {
				g.Scope = "workspace"
			}
			budget(t, b, g)
			require.Equal(t, []string{"first"}, keys(claimCards(t, b, nil)))
			tt.check(t, s, b)
		})
	}
}

func refusesMore(t *testing.T, _ *side, b *backlog.Workspace) {
	_, err := b.Create(t.Context(), backlog.TaskSpec{Title: "more", Estimate: tokens(10)})
	require.Equal(t, commands.OverBudget, commands.CodeOf(err), "%v", err)
}

func TestScopesOfBudgets(t *testing.T) {
	t.Parallel()
	for name, g := range map[string]backlog.Budget{
		"instance": {Scope: "instance"}, "workspace": {Scope: "workspace"}, "lane": {Scope: "lane", Target: "fast"},
		"account": {Scope: "account", Target: "ann"}, "agent": {Scope: "agent", Target: "worker-1"}, "task": {Scope: "task", Target: "mine"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSide(t)
			b := boardOf(t, s, "main")
			if name != "account" {
				budget(t, b, backlog.Budget{Name: "anns", Scope: "account", Target: "ann", Dimension: "usd", Hard: 1000 * backlog.Unit})
			}
			create(t, b, backlog.TaskSpec{Key: "mine", Title: "m", Lane: "fast", Account: "ann", Estimate: tokens(3)})
			g.Name, g.Dimension, g.Hard = "limit", "tokens", 2*backlog.Unit
			budget(t, b, g)

			require.Empty(t, claimCards(t, b, nil))
			_, err := b.GrantBudget(t.Context(), "limit", backlog.Unit, "enough")
			require.NoError(t, err)
			require.Equal(t, []string{"mine"}, keys(claimCards(t, b, nil)))
			_, reserved := left(t, b, "limit")
			require.Equal(t, backlog.Amount(3), reserved)
		})
	}
}

// An account that nobody gave a budget may spend nothing.
func TestAnUnknownAccountIsRefused(t *testing.T) {
	t.Parallel()
	b := board(t)
	create(t, b, backlog.TaskSpec{Key: "a", Title: "a", Account: "nobody"})

	require.Empty(t, claimCards(t, b, nil))
	require.Equal(t, backlog.OverBudget, eligibility(t, b, "a"))
	require.Equal(t, []string{"budget"}, stages(t, b, "a"))
	budget(t, b, backlog.Budget{Name: "n", Scope: "account", Target: "nobody", Dimension: "usd", Hard: backlog.Unit})
	require.Equal(t, []string{"a"}, keys(claimCards(t, b, nil)))
	require.NoError(t, b.RemoveBudget(t.Context(), "n", "done"))
	_, err := b.Complete(t.Context(), backlog.Act{Task: "a"})
	require.NoError(t, err, "a budget that was removed does not hold up the end")
}

func TestQuotas(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	b := boardOf(t, s, "main")
	for range 6 {
		create(t, b, backlog.TaskSpec{Title: "t"})
	}
	two, five := 2, 5
	require.NoError(t, b.SetQuota(t.Context(), backlog.Quota{Name: "q", Scope: "lane", Target: "default", Concurrent: &two, PerWindow: &five, Window: backlog.Seconds(time.Hour)}))

	list := claimCards(t, b, nil)
	require.Len(t, list, 2)
	require.Empty(t, claimCards(t, b, nil))
	ready, err := b.List(t.Context(), backlog.Filter{ReadyOnly: true})
	require.NoError(t, err)
	require.Equal(t, backlog.RateLimited, ready[0].Eligibility)
	require.Equal(t, []string{"quota"}, stages(t, b, ready[0].ID))
	held, err := b.CompleteMany(t.Context(), []backlog.Fence{list[0].Fence, list[1].Fence})
	require.NoError(t, err)
	require.Equal(t, []bool{true, true}, held)
	held, err = b.CompleteMany(t.Context(), []backlog.Fence{list[0].Fence, {Task: list[1].Fence.Task, Attempt: 1, Epoch: 99}})
	require.NoError(t, err)
	require.Equal(t, []bool{true, false}, held, "said again it is the same answer; another fence holds nothing")
	require.Len(t, claimCards(t, b, nil), 2)
	require.NoError(t, s.Exec(`UPDATE leases SET (until, sweep_at) = (now() - interval '1 second', '-infinity')`))
	_, err = b.Sweep(t.Context())
	require.NoError(t, err)
	require.Len(t, claimCards(t, b, nil), 1, "a lost claimer's share is free again; five claims in the hour are all there are")
	quotas, err := b.Quotas(t.Context())
	require.NoError(t, err)
	require.Equal(t, []int{1, 5}, []int{quotas[0].Active, quotas[0].InWindow})
	require.NoError(t, s.Exec(`UPDATE quota_uses SET at = at - interval '1 hour'`))
	quotas, err = b.Quotas(t.Context())
	require.NoError(t, err)
	require.Equal(t, []int{1, 0}, []int{quotas[0].Active, quotas[0].InWindow}, "what is held still counts, what was claimed in another hour does not")
	require.Len(t, claimCards(t, b, nil), 1)
	require.NoError(t, b.RemoveQuota(t.Context(), "q", "enough"))
	require.Len(t, claimCards(t, b, nil), 2)
}

func TestLanes(t *testing.T) {
	t.Parallel()
	b := board(t)
	create(t, b, backlog.TaskSpec{Key: "a", Title: "a", Lane: "docs"}, backlog.TaskSpec{Key: "b", Title: "b"})
	set := func(state string) {
		require.NoError(t, b.SetLane(t.Context(), backlog.Lane{Name: "docs", State: state, Reason: "holiday"}))
	}

	for _, state := range []string{"paused", "disabled"} {
		set(state)
		_, err := b.Claim(t.Context(), backlog.ClaimTerms{Owner: "w", Task: "a"})
		require.Equal(t, commands.Conflict, commands.CodeOf(err))
		require.ErrorContains(t, err, "holiday")
		require.Equal(t, backlog.LanePaused, eligibility(t, b, "a"))
		require.Contains(t, stages(t, b, "a"), "lane")
	}
	for _, state := range []string{"disabled", "draining"} {
		set(state)
		_, err := b.Create(t.Context(), backlog.TaskSpec{Title: "c", Lane: "docs"})
		require.Equal(t, commands.LaneClosed, commands.CodeOf(err), "%s: %v", state, err)
	}
	require.Equal(t, []string{"a"}, keys(claimCards(t, b, func(c *backlog.ClaimTerms) { c.Lanes = []string{"docs"} })), "what it has is still worked on")
	set("active")
	create(t, b, backlog.TaskSpec{Key: "c", Title: "c", Lane: "docs"})
	lanes, err := b.Lanes(t.Context())
	require.NoError(t, err)
	require.Equal(t, []int64{1, 0, 1, 1}, []int64{lanes[0].Queued, lanes[0].Claimed, lanes[1].Queued, lanes[1].Claimed}, "%+v", lanes)
}

// What somebody else is about to take hides nothing behind it, of its own class
// or of another.
func TestALockedTaskHidesNoOther(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	b := boardOf(t, s, backlog.MainWorkspace)
	gpu := []string{"gpu"}
	create(t, b, backlog.TaskSpec{Key: "first", Title: "x", Priority: 9, Capabilities: gpu})
	for _, key := range []string{"a", "b", "c", "d"} {
		create(t, b, backlog.TaskSpec{Key: key, Title: "x"})
	}
	tx := begin(t, s.URL)
	_, err := tx.Exec(t.Context(), `SELECT FROM ready WHERE rank = -9 FOR UPDATE`)
	require.NoError(t, err)

	claim := func(n int) []string {
		return keys(claimCards(t, b, func(c *backlog.ClaimTerms) { c.Limit, c.Capabilities = n, gpu }))
	}
	require.Equal(t, []string{"a"}, claim(1))
	require.Equal(t, []string{"b", "c", "d"}, claim(3))
	require.Empty(t, claim(1))
	require.NoError(t, tx.Rollback(t.Context()))
	require.Equal(t, []string{"first"}, claim(1))
}

// A claim waits for no task: others wait for the limits that it holds, and for what it
// has taken from ready.
func TestAClaimWaitsForNoTask(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	b := boardOf(t, s, backlog.MainWorkspace)
	require.NoError(t, b.SetQuota(t.Context(), backlog.Quota{Name: "q", Scope: "workspace", Concurrent: new(9)}))
	create(t, b, backlog.TaskSpec{Key: "held", Title: "x", Priority: 9}, backlog.TaskSpec{Key: "other", Title: "x"})
	tx := begin(t, s.URL)
	_, err := tx.Exec(t.Context(), `SELECT FROM tasks WHERE key = 'held' FOR UPDATE`)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()

	list, err := b.Claim(ctx, backlog.ClaimTerms{Owner: "w", Limit: 2})

	require.NoError(t, err)
	require.Equal(t, []string{"held", "other"}, keys(list))
}

// Whatever the workspace has, and however unevenly its classes are mixed, a
// batch is the first tasks by priority and age.
func TestABatchIsTheFirstTasks(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(*testing.T, *backlog.Workspace){
		"nothing": func(*testing.T, *backlog.Workspace) {},
		"a budget": func(t *testing.T, b *backlog.Workspace) {
			budget(t, b, backlog.Budget{Name: "all", Scope: "workspace", Dimension: "tokens", Hard: 1e12})
		},
		"a quota": func(t *testing.T, b *backlog.Workspace) {
			n := 100_000
			require.NoError(t, b.SetQuota(t.Context(), backlog.Quota{Name: "all", Scope: "workspace", Concurrent: &n}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := board(t)
			set(t, b)
			specs := make([]backlog.TaskSpec, 400)
			for i := range specs { // the first hundred are of one class, the others of five
				specs[i] = backlog.TaskSpec{Key: fmt.Sprint(i), Title: "x", Estimate: tokens(1), Priority: i * 7919 % 3}
				if i >= 100 {
					specs[i].Capabilities = []string{fmt.Sprint("c", i*31%5)}
				}
			}
			create(t, b, specs...)
			want := make([]string, 0, len(specs))
			for p := 2; p >= 0; p-- {
				for i := range specs {
					if specs[i].Priority == p {
						want = append(want, specs[i].Key)
					}
				}
			}
			for _, n := range []int{60, 1, 120, 30} {
				got := claimCards(t, b, func(c *backlog.ClaimTerms) {
					c.Limit, c.Capabilities = n, []string{"c0", "c1", "c2", "c3", "c4"}
				})
				require.Equal(t, want[:n], keys(got))
				want = want[n:]
			}
		})
	}
}

// A lane's share of the claims is its weight, singly and in batches.
func TestLanesShareByWeight(t *testing.T) {
	t.Parallel()
	b := board(t)
	require.NoError(t, b.SetLane(t.Context(), backlog.Lane{Name: "heavy", Weight: 3}))
	specs := make([]backlog.TaskSpec, 0, 2000)
	for range 1000 {
		specs = append(specs, backlog.TaskSpec{Title: "h", Lane: "heavy"}, backlog.TaskSpec{Title: "l", Lane: "light", Priority: 100})
	}
	create(t, b, specs...)

	for _, limit := range []int{1, 40} {
		heavy := 0
		for range 400 / limit {
			for _, c := range claimCards(t, b, func(c *backlog.ClaimTerms) { c.Limit = limit }) {
				if c.Lane == "heavy" {
					heavy++
				}
			}
		}
		require.InDelta(t, 300, heavy, 50, "%d at a time: three of four claims", limit) // 50 is more than five deviations
	}
}

// A connection's share is the weight of its grant, within one lane, singly and in
// batches; one that is not active, or whose grant has ended, has none.
func TestConnectionsShareByWeight(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	here := scene{t, s, boardOf(t, s, backlog.MainWorkspace)}
	s.Meet(t, store.Obeys)
	heavy := s.Conn.ID
	s.MeetAnother(t, store.Obeys)
	light := s.Conn.ID
	conn := owner(t, s.URL)
	set := func(sql, id string) {
		_, err := conn.Exec(t.Context(), sql, id)
		require.NoError(t, err)
	}
	set(`UPDATE grants SET weight = 3 WHERE conn = $1`, heavy)
	list := make([]backlog.Request, 0, 2000)
	for range 1000 {
		for _, c := range []string{heavy, light} {
			r := here.request()
			r.Conn = c
			if c == light {
				r.Spawn.Priority = 100
			}
			list = append(list, r)
		}
	}
	_, err := within(t.Context(), s, func(ctx context.Context, tx *store.Tx) (any, error) { return s.backlog.Request(ctx, tx, list) })
	require.NoError(t, err)
	share := func(limit, n int) (of map[string]int) {
		of = map[string]int{}
		for range n / limit {
			got, err := s.backlog.Claim(t.Context(), backlog.ClaimTerms{Owner: "spoke", Limit: limit})
			require.NoError(t, err)
			for _, c := range got {
				of[c.Conn]++
			}
		}
		return of
	}

	for _, limit := range []int{1, 40} {
		require.InDelta(t, 300, share(limit, 400)[heavy], 50, "%d at a time: three of four claims", limit) // 50 is more than five deviations
	}
	for _, prepare := range []func(){
		func() {},
		func() { require.NoError(t, here.b.SetLane(t.Context(), backlog.Lane{Name: "other", Weight: 2})) }, // with limits another statement claims
	} {
		prepare()
		require.InDelta(t, 30, share(40, 40)[heavy], 20)
		for what, away := range map[string][2]string{
			"suspended": {`UPDATE connections SET state = 'suspended' WHERE id = $1`, `UPDATE connections SET state = 'active' WHERE id = $1`},
			"expired":   {`UPDATE grants SET expires_at = now() WHERE conn = $1`, `UPDATE grants SET expires_at = 'infinity' WHERE conn = $1`},
		} {
			set(away[0], heavy)
			for _, limit := range []int{1, 10} {
				require.Equal(t, map[string]int{light: 10}, share(limit, 10), what)
			}
			var task string
			require.NoError(t, conn.QueryRow(t.Context(), `SELECT id::text FROM standing WHERE conn = $1 AND state = 'queued' LIMIT 1`, heavy).Scan(&task))
			require.Equal(t, backlog.Held, eligibility(t, here.b, task))
			require.Contains(t, stages(t, here.b, task), map[string]string{"suspended": "connection", "expired": "grant"}[what])
			set(away[1], heavy)
		}
	}
}

// failed is the error of what also returns something.
func failed(_ any, err error) error { return err }

// One that is frozen already stays as it is, and whoever freezes it again is told.
func TestASecondFreezeSaysTheFirst(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	b := boardOf(t, s, backlog.MainWorkspace)
	was, err := b.Freeze(t.Context(), backlog.Freeze{Scope: "workspace", Reason: "incident"})
	require.NoError(t, err)
	require.Nil(t, was)

	was, err = b.Freeze(t.Context(), backlog.Freeze{Scope: "workspace", Reason: "another"})

	require.NoError(t, err)
	require.Equal(t, "incident", was.Reason)
	require.NotEmpty(t, was.Actor)
	require.WithinDuration(t, time.Now(), was.Since, time.Minute)
	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM audit WHERE action = 'freeze'`), "nothing was changed")
	list, err := b.Freezes(t.Context())
	require.NoError(t, err)
	require.Equal(t, []backlog.Freeze{*was}, list)
}

func TestFreezes(t *testing.T) {
	t.Parallel()
	b := board(t)
	budget(t, b, backlog.Budget{Name: "anns", Scope: "account", Target: "ann", Dimension: "usd", Hard: 1000 * backlog.Unit})
	create(t, b, backlog.TaskSpec{Key: "a", Title: "a", Lane: "docs", Account: "ann"})
	for _, f := range []backlog.Freeze{{Scope: "instance"}, {Scope: "workspace"}, {Scope: "lane", Target: "docs"}, {Scope: "account", Target: "ann"}} {
		f.Reason = "incident"
		require.NoError(t, failed(b.Freeze(t.Context(), f)))
		require.Empty(t, claimCards(t, b, nil), "%+v", f)
		require.Equal(t, backlog.EligibleFrozen, eligibility(t, b, "a"))
		require.Contains(t, stages(t, b, "a"), "freeze")
		list, err := b.Freezes(t.Context())
		require.NoError(t, err)
		require.Len(t, list, 1)
		require.NoError(t, b.Unfreeze(t.Context(), f.Scope, f.Target, "over"))
		require.Equal(t, commands.NotFound, commands.CodeOf(b.Unfreeze(t.Context(), f.Scope, f.Target, "over")))
	}
	require.Len(t, claimCards(t, b, nil), 1)
}

// Whoever cannot take a task does not see it, and is not kept from others by it.
func TestWhyNamesEveryReasonAndWhoCould(t *testing.T) {
	t.Parallel()
	b := board(t)
	create(t, b, backlog.TaskSpec{Key: "dep", Title: "dep", NotBefore: time.Now().Add(time.Hour)})
	create(t, b, backlog.TaskSpec{Key: "a", Title: "a", Lane: "docs", Capabilities: []string{"gpu"}, Account: "ann", DependsOn: []string{"dep"}, Estimate: tokens(5)})
	require.NoError(t, b.SetLane(t.Context(), backlog.Lane{Name: "docs", State: "paused"}))
	require.NoError(t, failed(b.Freeze(t.Context(), backlog.Freeze{Scope: "workspace", Reason: "incident"})))
	budget(t, b, backlog.Budget{Name: "small", Scope: "workspace", Dimension: "tokens", Hard: backlog.Unit})
	none := 0
	require.NoError(t, b.SetQuota(t.Context(), backlog.Quota{Name: "none", Scope: "workspace", Concurrent: &none}))

	require.Equal(t, []string{"freeze", "lane", "dependency", "capability", "quota", "budget", "budget"}, stages(t, b, "a"))
	require.Equal(t, []string{"freeze", "not_before", "capability", "quota"}, stages(t, b, "dep"))
	claimCards(t, b, func(c *backlog.ClaimTerms) { c.Owner, c.Capabilities = "able", []string{"gpu", "go"} })
	claimCards(t, b, func(c *backlog.ClaimTerms) { c.Owner = "unable" })
	w, err := b.Why(t.Context(), "a")
	require.NoError(t, err)
	require.Len(t, w.By, 1)
	require.Equal(t, "able", w.By[0].Owner)
	require.False(t, w.Claimable)
	for _, r := range w.Reasons {
		require.NotEmpty(t, r.Text)
	}
}

// A claim that waited for a limit, and finds it gone, claims as if there had been none.
func TestAClaimOutlivesTheLastLimit(t *testing.T) {
	t.Parallel()
	for _, table := range []string{"quotas", "budgets"} {
		t.Run(table, func(t *testing.T) {
			t.Parallel()
			s := newSide(t)
			here := scene{t, s, boardOf(t, s, backlog.MainWorkspace)}
			here.tasks("a", "b")
			map[string]func(){"quotas": here.quota, "budgets": here.budget}[table]()
			remover, watcher := owner(t, s.URL), owner(t, s.URL)
			_, err := remover.Exec(t.Context(), `BEGIN; DELETE FROM `+table)
			require.NoError(t, err)
			var list []backlog.Claimed
			ended := make(chan error, 1)

			go func() {
				var err error
				list, err = here.b.Claim(context.Background(), backlog.ClaimTerms{Owner: "w", Limit: 2})
				ended <- err
			}()
			eventually(t, "the claim waits", func() (yes bool) {
				require.NoError(t, watcher.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`).Scan(&yes))
				return yes
			})
			_, err = remover.Exec(t.Context(), `COMMIT`)
			require.NoError(t, err)

			require.NoError(t, <-ended)
			require.Len(t, list, 2)
			require.Zero(t, s.Count(t, `SELECT count(*) FROM leases WHERE budgets IS NOT NULL`), "nothing is reserved of what is gone")
		})
	}
}

// A batch is claimed in several tries. What the first ones took is the caller's also where a
// later one fails.
func TestABatchThatFailsHalfWayIsNotLost(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	b := boardOf(t, s, backlog.MainWorkspace)
	var specs []backlog.TaskSpec
	var able []string
	for range 50 { // one class, of which a try takes a part
		specs = append(specs, backlog.TaskSpec{Title: "t"})
	}
	for i := range 19 {
		able = append(able, fmt.Sprintf("can-%d", i))
		specs = append(specs, backlog.TaskSpec{Title: "t", Capabilities: able[i:]})
	}
	create(t, b, specs...)
	_, err := owner(t, s.URL).Exec(t.Context(), `CREATE FUNCTION refuse_more() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF EXISTS (SELECT FROM leases WHERE xmin <> pg_current_xact_id()::xid) THEN RAISE EXCEPTION 'the disk is full'; END IF; RETURN NEW; END $$;
		CREATE TRIGGER refuse_more BEFORE INSERT ON leases FOR EACH ROW EXECUTE FUNCTION refuse_more()`)
	require.NoError(t, err)

	list, err := b.Claim(t.Context(), backlog.ClaimTerms{Owner: "w", Limit: 100, Capabilities: able})

	require.ErrorContains(t, err, "the disk is full")
	require.NotEmpty(t, list)
	require.Len(t, list, s.Count(t, `SELECT count(*) FROM leases`))
	require.NotEmpty(t, list[0].Grant)
	require.Equal(t, backlog.DefaultLane, list[0].Lane)
}
