package backlog_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// What a limit binds does not change: what counts against it is of that scope.
func TestLimitsThatAreRefused(t *testing.T) {
	t.Parallel()
	b := board(t)
	n := 2
	day := backlog.Budget{Name: "day", Scope: "lane", Target: "docs", Dimension: "tokens", Hard: backlog.Unit, Rolling: backlog.Seconds(time.Hour)}
	few := backlog.Quota{Name: "few", Scope: "lane", Target: "docs", Concurrent: &n}
	budget(t, b, day)
	require.NoError(t, b.SetQuota(t.Context(), few))
	create(t, b, backlog.TaskSpec{Key: "over", Title: "x"})
	_, err := b.Cancel(t.Context(), backlog.Act{Task: "over"})
	require.NoError(t, err)
	budgets, err := b.Budgets(t.Context())
	require.NoError(t, err)
	quotas, err := b.Quotas(t.Context())
	require.NoError(t, err)
	changed := func(change func(*backlog.Budget)) error {
		g := day
		change(&g)
		return b.SetBudget(t.Context(), g)
	}
	over := func() error {
		return changed(func(g *backlog.Budget) { g.Name, g.Scope, g.Target = "own", "task", "over" })
	}
	require.ErrorContains(t, over(), "task over is cancelled and spends nothing more", "it is not called contention")
	for name, set := range map[string]func() error{
		"a budget with another target":         func() error { return changed(func(g *backlog.Budget) { g.Target = "code" }) },
		"a budget with another scope":          func() error { return changed(func(g *backlog.Budget) { g.Scope = "account" }) },
		"a budget with another dimension":      func() error { return changed(func(g *backlog.Budget) { g.Dimension = "usd" }) },
		"a budget with another kind of window": func() error { return changed(func(g *backlog.Budget) { g.Rolling = 0 }) },
		"a budget for a task that has ended":   over,
		"a quota with another target": func() error {
			return b.SetQuota(t.Context(), backlog.Quota{Name: "few", Scope: "lane", Target: "code", Concurrent: &n})
		},
		"a quota with another scope": func() error {
			return b.SetQuota(t.Context(), backlog.Quota{Name: "few", Scope: "account", Target: "docs", Concurrent: &n})
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := set()

			require.Equal(t, commands.Conflict, commands.CodeOf(err), "%v", err)
			after, err := b.Budgets(t.Context())
			require.NoError(t, err)
			require.Equal(t, budgets, after)
			all, err := b.Quotas(t.Context())
			require.NoError(t, err)
			require.Equal(t, quotas, all)
		})
	}
}

// Who changed what may be claimed, and why, is in the audit.
func TestEveryActOnALimitIsAudited(t *testing.T) {
	t.Parallel()
	b := board(t)
	n := 2
	for _, err := range []error{
		b.SetBudget(t.Context(), backlog.Budget{Name: "day", Scope: "lane", Target: "docs", Dimension: "tokens", Hard: backlog.Unit}),
		second(b.GrantBudget(t.Context(), "day", backlog.Unit, "more")),
		second(b.ResetBudget(t.Context(), "day", "new day")),
		b.RemoveBudget(t.Context(), "day", "done"),
		b.SetQuota(t.Context(), backlog.Quota{Name: "few", Scope: "lane", Target: "docs", Concurrent: &n}),
		b.RemoveQuota(t.Context(), "few", "enough"),
		b.SetLane(t.Context(), backlog.Lane{Name: "docs", State: "paused", Reason: "holiday"}),
		b.SetLane(t.Context(), backlog.Lane{Name: "docs", Weight: 3}),
		failed(b.Freeze(t.Context(), backlog.Freeze{Scope: "lane", Target: "docs", Reason: "incident"})),
		b.Unfreeze(t.Context(), "lane", "docs", "over"),
	} {
		require.NoError(t, err)
	}

	rows, err := b.Audit(t.Context(), "", 0, 100)

	require.NoError(t, err)
	var said []string
	for _, r := range rows {
		said = append(said, strings.Join([]string{r.Actor, r.Action, r.Object, r.Why}, "; "))
	}
	require.Equal(t, []string{
		"ann; budget.set; day; 1 of tokens for lane docs", "ann; budget.granted; day; more", "ann; budget.reset; day; new day", "ann; budget.removed; day; done",
		"ann; quota.set; few; for lane docs", "ann; quota.removed; few; enough",
		"ann; lane.paused; docs; holiday", "ann; lane.weighed; docs; ",
		"ann; freeze; lane docs; incident", "ann; unfreeze; lane docs; over",
	}, said)
}

// A lane says since when it is in its state, whatever else is set meanwhile.
func TestSinceWhenALaneIsPaused(t *testing.T) {
	t.Parallel()
	b := board(t)
	set := func(l backlog.Lane) time.Time {
		l.Name = "docs"
		require.NoError(t, b.SetLane(t.Context(), l))
		lanes, err := b.Lanes(t.Context())
		require.NoError(t, err)
		return lanes[0].Since
	}

	first := set(backlog.Lane{State: "active"})
	paused := set(backlog.Lane{State: "paused"})
	heavier, again := set(backlog.Lane{Weight: 3}), set(backlog.Lane{State: "paused"})

	require.Greater(t, paused, first)
	require.Equal(t, []time.Time{paused, paused}, []time.Time{heavier, again})
}
