package backlog_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// A phase is listed wherever its tasks stand, whichever way they came there.
func TestAPhaseIsListedWhereverItsTasksStand(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	b := boardOf(t, s, backlog.MainWorkspace)
	spec := func(key string) backlog.TaskSpec {
		return backlog.TaskSpec{Key: key, Title: "t", Phase: "build"}
	}
	later, waits, freed, due := spec("later"), spec("waits"), spec("freed"), spec("due")
	later.NotBefore, due.NotBefore = time.Now().Add(time.Hour), time.Now().Add(time.Hour)
	waits.DependsOn, freed.DependsOn = []string{"ready"}, []string{"done"}
	create(t, b, spec("ready"), spec("done"), later, waits, freed, due, spec("held"), spec("blocked"), spec("cancelled"), spec("failed"), spec("retried"),
		backlog.TaskSpec{Key: "other", Title: "t", Phase: "test"}, backlog.TaskSpec{Key: "none", Title: "t"})
	claim := func(key string) *backlog.Fence {
		return &claimCards(t, b, func(c *backlog.ClaimTerms) { c.Task = key })[0].Fence
	}
	does := func(_ backlog.Task, err error) { require.NoError(t, err) }
	does(b.Complete(t.Context(), backlog.Act{Fence: claim("done")}))
	claim("held")
	does(b.Block(t.Context(), backlog.Act{Task: "blocked"}))
	does(b.Cancel(t.Context(), backlog.Act{Task: "cancelled"}))
	does(b.Fail(t.Context(), backlog.Act{Fence: claim("failed")}))
	does(b.Fail(t.Context(), backlog.Act{Fence: claim("retried")}))
	does(b.Retry(t.Context(), backlog.Act{Task: "retried"}))
	require.NoError(t, s.Exec(`WITH t AS (UPDATE tasks SET not_before = now() WHERE key = 'due' RETURNING id) UPDATE due SET at = now() FROM t WHERE task = t.id`))
	_, err := b.Sweep(t.Context())
	require.NoError(t, err)

	for what, tt := range map[string]struct {
		filter backlog.Filter
		want   []string
	}{
		"all":       {backlog.Filter{}, []string{"ready", "done", "later", "waits", "freed", "due", "held", "blocked", "cancelled", "failed", "retried"}},
		"queued":    {backlog.Filter{State: commands.Queued}, []string{"ready", "later", "waits", "freed", "due", "retried"}},
		"claimable": {backlog.Filter{ReadyOnly: true}, []string{"ready", "freed", "due", "retried"}},
		"of one":    {backlog.Filter{Owner: "worker-1"}, []string{"held"}},
		"failed":    {backlog.Filter{State: commands.Failed}, []string{"failed"}},
		"elsewhere": {backlog.Filter{Lane: "docs"}, nil},
	} {
		tt.filter.Phase = "build"
		list, err := b.List(t.Context(), tt.filter)
		require.NoError(t, err)
		got := []string{}
		for _, task := range list {
			got = append(got, task.Key)
		}
		require.ElementsMatch(t, tt.want, got, what)
	}
	requireInvariants(t, s.URL)
}
