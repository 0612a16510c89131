package meshtest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
)

// An order wakes its spoke, and so does a slot that becomes free: a spoke that looks by
// itself only once an hour works all the same.
func TestASpokeIsWokenByItsOrders(t *testing.T) {
	t.Parallel()
	m := Plan{Slots: 1, Idle: time.Hour, Quiet: time.Hour}.Start(t, "attic")
	require.Equal(t, commands.Completed, m.Wait(t, m.Noop(t, "attic")).State, "it has looked for the first time")

	first, second := m.Spawn(t, "attic", "true"), m.Spawn(t, "attic", "true")

	require.Equal(t, commands.Completed, m.Wait(t, first).State)
	require.Equal(t, commands.Completed, m.Wait(t, second).State)
}
