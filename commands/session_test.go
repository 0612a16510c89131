package commands_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
)

// Every state of a task, with and without an agent that runs, adopted or not, has exactly one state of its session: the table
// names them all, so a state that is added needs a row.
func TestEveryPairOfSessionAndTask(t *testing.T) {
	t.Parallel()
	const live, adopted, resumable, retired = commands.Live, commands.Adopted, commands.Resumable, commands.Retired
	type row struct{ waits, runs, adopted commands.SessionState } // nothing runs; it runs; it runs and was adopted
	open, over := row{resumable, live, adopted}, row{retired, retired, retired}
	table := map[commands.State]row{
		commands.Queued: open, commands.Claimed: open, commands.Running: open, commands.AwaitingInput: open, commands.Paused: open,
		commands.Blocked: open, commands.InReview: open, commands.Approved: open,
		commands.Completed: over, commands.Failed: over, commands.Cancelled: over, commands.Expired: over, commands.Unavailable: over,
	}
	require.Len(t, table, len(commands.States))
	seen := map[commands.SessionState]bool{}
	for state, want := range table {
		for _, pair := range [][2]commands.SessionState{
			{want.waits, commands.Session(true, state, false, false)}, {want.runs, commands.Session(true, state, true, false)}, {want.adopted, commands.Session(true, state, true, true)},
		} {
			require.Equal(t, pair[0], pair[1], state)
			seen[pair[1]] = true
		}
		require.Equal(t, want.waits, commands.Session(true, state, false, true), "what does not run was not adopted")
		for _, runs := range []bool{false, true} {
			require.Equal(t, commands.NoSession, commands.Session(false, state, runs, false), "no id is kept")
			require.Equal(t, commands.NoSession, commands.Session(false, state, runs, true))
		}
	}
	seen[commands.NoSession] = true
	require.Len(t, seen, len(commands.SessionStates))
}
