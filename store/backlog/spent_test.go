package backlog_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// A sweep looks at no queue for the sake of budgets that have room, however many
// classes they bind.
func TestBudgetsWithRoomCostNoLookAtTheQueue(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	b := boardOf(t, s, backlog.MainWorkspace)
	for i := range 50 {
		create(t, b, backlog.TaskSpec{Title: "t", Lane: fmt.Sprint("l", i), Estimate: tokens(5)}, backlog.TaskSpec{Title: "t", Lane: fmt.Sprint("l", i)})
	}
	for name, how := range map[string]string{"a": "cancel", "b": "downgrade"} {
		g := backlog.Budget{Name: name, Scope: "workspace", Dimension: "tokens", Hard: 1000 * backlog.Unit, OnHard: how}
		if how == "downgrade" {
			g.DowngradeTo = "slow"
		}
		require.NoError(t, b.SetBudget(t.Context(), g))
	}
	w := &watcher{}
	db, err := store.Open(t.Context(), store.Config{URL: s.URL, Self: s.Self(), Signer: s.Signing, PoolSize: 2, Tracer: w})
	require.NoError(t, err)
	t.Cleanup(db.Close)
	watched := backlog.Open(db, nobodyAsks)

	list := w.during(t, func(ctx context.Context) error {
		swept, err := watched.Sweep(ctx, 0)
		return counted(int(swept.Limits), 0, err)
	})

	for _, sent := range list {
		require.LessOrEqual(t, explain(t, w.config, sent).Reads("ready"), 1.0, sent.sql)
	}
}
