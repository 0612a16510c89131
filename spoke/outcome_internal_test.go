package spoke

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/spoke/runtime"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
)

// A limit is why an agent has failed where it has: one that was killed or timed out meanwhile says the figure alone.
func TestALimitIsTheReasonOfAFailure(t *testing.T) {
	t.Parallel()
	breach := supervisor.Breach{Limit: "memory", Unit: "bytes", Allowed: 1, Measured: 2}
	told := &commands.Breach{Limit: "memory", Unit: "bytes", Allowed: 1, Measured: 2}
	for outcome, why := range map[supervisor.Outcome]commands.Reason{
		supervisor.Limited: "memory", supervisor.Signalled: "memory", supervisor.TimedOut: commands.NoReason, supervisor.Killed: commands.NoReason,
	} {
		got, reason := breachOf(supervisor.Exit{Outcome: outcome, Breach: breach})
		require.Equal(t, told, got, "%s", outcome)
		require.Equal(t, why, reason, "%s", outcome)
	}
	got, reason := breachOf(supervisor.Exit{Outcome: supervisor.Limited})
	require.Nil(t, got)
	require.Equal(t, commands.NoReason, reason)
}

// What may pass by itself is tried again, and costs its agent nothing; what cannot be started as it was ordered has ended.
func TestWhatCouldNotStart(t *testing.T) {
	t.Parallel()
	for reason, want := range map[supervisor.Reason]commands.Outcome{
		supervisor.NotFound: commands.CouldNotStart, supervisor.BadSpec: commands.CouldNotStart,
		supervisor.NoResources: commands.Released, supervisor.HostFault: commands.Released, supervisor.LeaseOver: commands.Released,
	} {
		end := couldNotStart(fmt.Errorf("an attempt: %w", &supervisor.StartError{Reason: reason, Text: "it did not"}))

		require.Equal(t, want, end.Outcome, "%s", reason)
		require.Equal(t, want, outcomeOf(supervisor.Exit{Outcome: supervisor.StartFailed, Failed: reason}), "as an earlier process would have said it: %s", reason)
		require.Contains(t, end.Exit.Error, "it did not")
	}
	require.Equal(t, commands.CouldNotStart, couldNotStart(fmt.Errorf("an attempt: %w", &runtime.Refusal{Reason: runtime.BadEnv})).Outcome)
	require.Equal(t, commands.CouldNotStart, outcomeOf(supervisor.Exit{Outcome: supervisor.StartFailed}), "of a shim that recorded no reason")
	for _, err := range []error{errors.New("something else"), unix.EMFILE, unix.ENOSPC, unix.EIO, unix.EEXIST, unix.EACCES} { // wherever it is met: at the files of an attempt, at the door
		end := couldNotStart(fmt.Errorf("noting the policy of an attempt: %w", &os.PathError{Op: "open", Path: "/x", Err: err}))

		require.Equal(t, commands.Released, end.Outcome, "%v", err)
		require.Equal(t, "noting the policy of an attempt: open /x: "+err.Error(), end.Exit.Error)
	}
	require.Equal(t, "too many", withoutPath(fmt.Errorf("an attempt: %w", &supervisor.StartError{Path: "/srv/of an order", Text: "too many"})))
}
