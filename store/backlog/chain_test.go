package backlog_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// A chain of many is no trouble: its circle is found and told in few words, and an end goes on to its last link.
func TestAChainOfTenThousand(t *testing.T) {
	t.Parallel()
	const n = 10_000
	b := board(t)
	specs := make([]backlog.TaskSpec, n)
	for i := range specs {
		specs[i] = backlog.TaskSpec{Key: fmt.Sprint("link", i), Title: "link", OnFailedDep: "cancel"}
		if i > 0 {
			specs[i].DependsOn = []string{specs[i-1].Key}
		}
	}
	create(t, b, specs...)
	begun := time.Now()

	err := b.Link(t.Context(), specs[0].Key, specs[n-1].Key)

	require.Less(t, time.Since(begun), 30*time.Second)
	require.Equal(t, commands.Cycle, commands.CodeOf(err), "%v", err)
	require.ErrorContains(t, err, "link0 -> link9999 -> link9998 -> ")
	require.ErrorContains(t, err, " more … -> ")
	require.Less(t, len(err.Error()), 1000)
	require.Equal(t, []string{specs[0].Key}, keys(claimCards(t, b, nil)), "the rest waits")
	_, err = b.Cancel(t.Context(), backlog.Act{Task: specs[1].Key, Reason: "all but the first"})
	require.NoError(t, err)
	last, err := b.Show(t.Context(), specs[n-1].Key)
	require.NoError(t, err)
	require.Equal(t, commands.Cancelled, last.State)
}
