package backlog_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// Whatever counts against a rolling budget leaves it after the window, once: as
// much can be claimed then as before, and no more.
func TestARollingBudgetIsWholeAgainAfterItsWindow(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	b := boardOf(t, s, backlog.MainWorkspace)
	complete := func(t *testing.T, c backlog.Claimed, usage map[string]backlog.Amount) {
		_, err := b.Complete(t.Context(), backlog.Act{Fence: &c.Fence, Usage: usage})
		require.NoError(t, err)
	}
	for name, tt := range map[string]struct {
		used  backlog.Amount
		spend func(t *testing.T, budget string, c backlog.Claimed)
	}{
		"the estimate":           {10, func(t *testing.T, _ string, c backlog.Claimed) { complete(t, c, nil) }},
		"a report at the end":    {7, func(t *testing.T, _ string, c backlog.Claimed) { complete(t, c, tokens(7)) }},
		"more than was reserved": {25, func(t *testing.T, _ string, c backlog.Claimed) { complete(t, c, tokens(25)) }},
		"reports while it runs": {7, func(t *testing.T, _ string, c backlog.Claimed) {
			require.NoError(t, b.Report(t.Context(), c.Fence, "1", tokens(4)))
			require.NoError(t, b.Report(t.Context(), c.Fence, "2", tokens(3)))
			complete(t, c, nil)
		}},
		"what a reset has forgotten": {0, func(t *testing.T, budget string, c backlog.Claimed) {
			complete(t, c, nil)
			_, err := b.ResetBudget(t.Context(), budget, "by hand")
			require.NoError(t, err)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			lane := strings.ReplaceAll(name, " ", "-")
			claim := func() []backlog.Claimed {
				return claimCards(t, b, func(c *backlog.ClaimTerms) { c.Lanes = []string{lane} })
			}
			budget(t, b, backlog.Budget{Name: lane, Scope: "lane", Target: lane, Dimension: "tokens", Hard: 10 * backlog.Unit, Rolling: backlog.Seconds(time.Hour)})
			for range 3 {
				create(t, b, backlog.TaskSpec{Title: "x", Lane: lane, Estimate: tokens(10)})
			}
			tt.spend(t, lane, claim()[0])
			before, _ := left(t, b, lane)

			require.NoError(t, s.Exec(`UPDATE charges SET at = at - interval '1 hour'`))
			_, err := b.Sweep(t.Context())

			require.NoError(t, err)
			require.Equal(t, tt.used, before)
			used, _ := left(t, b, lane)
			require.Zero(t, used)
			require.Len(t, claim(), 1)
		})
	}
}
