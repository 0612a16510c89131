package backlog_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// However different estimates are, their tasks share a few classes, and each
// reserves exactly its own.
func TestEstimatesMakeNoClassesOfTheirOwn(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	b := boardOf(t, s, backlog.MainWorkspace)
	budget(t, b, backlog.Budget{Name: "all", Scope: "workspace", Dimension: "tokens", Hard: 1e9 * backlog.Unit})
	specs, sum := make([]backlog.TaskSpec, 1000), backlog.Amount(0)
	for i := range specs {
		cost := 1 + backlog.Amount(rand.Int64N(int64(1e4*backlog.Unit)))
		specs[i] = backlog.TaskSpec{Title: "t", Estimate: map[string]backlog.Amount{"tokens": cost}}
		sum += cost
	}
	create(t, b, specs...)

	require.LessOrEqual(t, s.Count(t, `SELECT count(*) FROM classes`), 10)
	for got := 0; got < len(specs); {
		list := claimCards(t, b, nil)
		require.NotEmpty(t, list)
		got += len(list)
	}
	list, err := b.Budgets(t.Context())
	require.NoError(t, err)
	require.Equal(t, sum, list[0].Reserved)
}

// Of tasks of one class, those that a budget has room for are claimed past those
// that it has no room for.
func TestWhatDoesNotFitHidesNothingOfItsClass(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	b := boardOf(t, s, backlog.MainWorkspace)
	create(t, b, backlog.TaskSpec{Key: "fourteen", Title: "t", Priority: 2, Estimate: tokens(14)}, backlog.TaskSpec{Key: "thirteen", Title: "t", Priority: 1, Estimate: tokens(13)},
		backlog.TaskSpec{Key: "ten", Title: "t", Estimate: tokens(10)}, backlog.TaskSpec{Key: "two", Title: "t", Estimate: tokens(2)})
	require.Equal(t, 1, s.Count(t, `SELECT count(DISTINCT class) FROM ready WHERE estimate->>'tokens' <> '2000000'`))
	budget(t, b, backlog.Budget{Name: "day", Scope: "workspace", Dimension: "tokens", Hard: 12 * backlog.Unit})

	require.Equal(t, backlog.OverBudget, eligibility(t, b, "thirteen"))
	require.Equal(t, backlog.EligibleReady, eligibility(t, b, "ten"))
	require.Equal(t, []string{"ten"}, keys(claimCards(t, b, func(c *backlog.ClaimTerms) { c.Limit = 1 })))
	require.Equal(t, []string{"two"}, keys(claimCards(t, b, nil)))
	require.Empty(t, claimCards(t, b, nil))
}

// Where more classes have ready tasks than a claim looks at, each has its turn, and
// what is refused stands in nobody's way.
func TestEachOfManyClassesHasItsTurn(t *testing.T) {
	t.Parallel()
	const classes = 200
	b := board(t)
	var specs []backlog.TaskSpec
	for i := range classes {
		specs = append(specs, backlog.TaskSpec{Key: fmt.Sprint("open-", i), Title: "t", Lane: fmt.Sprint("open-", i)}, backlog.TaskSpec{Title: "t", Lane: fmt.Sprint("shut-", i)})
		require.NoError(t, b.SetLane(t.Context(), backlog.Lane{Name: fmt.Sprint("shut-", i), State: "paused"}))
	}
	create(t, b, specs...)
	got := map[string]bool{}
	claim := func(n int) int {
		list := claimCards(t, b, func(c *backlog.ClaimTerms) { c.Limit = n })
		for _, key := range keys(list) {
			require.False(t, got[key], key)
			got[key] = true
		}
		return len(list)
	}

	for range 20 {
		require.Equal(t, 1, claim(1))
	}
	require.Equal(t, 100, claim(100))
	require.Equal(t, classes-120, claim(1000))
	require.Zero(t, claim(1))
}

// Processes that claim once each begin anywhere: none of many classes waits until
// those before it are empty.
func TestAFirstClaimBeginsAnywhere(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	b := boardOf(t, s, backlog.MainWorkspace)
	for i := range 300 {
		create(t, b, backlog.TaskSpec{Key: fmt.Sprint(i), Title: "t", Lane: fmt.Sprint("lane-", i)}, backlog.TaskSpec{Title: "t", Lane: fmt.Sprint("lane-", i)})
	}
	thirds := map[int]int{}
	for range 60 {
		once, err := backlog.Open(s.DB, nobodyAsks).Workspace(backlog.MainWorkspace, "ann")
		require.NoError(t, err)
		list := claimCards(t, once, func(c *backlog.ClaimTerms) { c.Limit = 1 })
		require.Len(t, list, 1)
		n, err := strconv.Atoi(strings.TrimPrefix(list[0].Lane, "lane-"))
		require.NoError(t, err)
		thirds[n/100]++
	}
	require.Len(t, thirds, 3, "claims by third of the classes: %v", thirds)
}
