package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// What is told of an agent that is here no more is refused, and is no fault of who tells it; what answers no command is.
func TestWhoseFaultARefusalIs(t *testing.T) {
	t.Parallel()
	require.Equal(t, store.None, store.FaultOf(commands.UnknownTask))
	require.Equal(t, store.Wrong, store.FaultOf(commands.ReUnknown))
}
