package webhook

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/store"
)

// More of a webhook is claimed when no more are left than are tried at once, and nothing is kept of one that is told nothing.
func TestALaneIsLeft(t *testing.T) {
	t.Parallel()
	var l lanes
	var places []place
	for range store.AtOnce + 2 {
		places = append(places, l.enter("one", time.Now().Add(time.Minute)))
	}
	other := l.enter("other", time.Now().Add(time.Minute))

	require.False(t, places[0].leave())
	require.True(t, places[1].leave())
	for _, p := range places[2:] {
		require.Len(t, l.of, 2)
		require.True(t, p.leave())
	}

	require.NotContains(t, l.of, "one")
	require.True(t, other.leave())
	require.Empty(t, l.of)
}
