package spoke

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
)

// What may pass by itself is tried again, and costs its agent nothing; what cannot be started as it was ordered has ended.
func TestWhatCouldNotStart(t *testing.T) {
	t.Parallel()
	for reason, want := range map[supervisor.Reason]commands.Outcome{
		supervisor.NotFound: commands.CouldNotStart, supervisor.BadSpec: commands.CouldNotStart,
		supervisor.NoResources: commands.Released, supervisor.HostFault: commands.Released, supervisor.LeaseOver: commands.Released,
	} {
		end := couldNotStart(fmt.Errorf("an attempt: %w", &supervisor.StartError{Reason: reason, Text: "it did not"}))

		require.Equal(t, want, end.Outcome, "%s", reason)
		require.Contains(t, end.Exit.Error, "it did not")
	}
	require.Equal(t, commands.CouldNotStart, couldNotStart(errors.New("something else")).Outcome)
}
