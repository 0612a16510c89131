package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
)

// How an agent ended is told by the exit code of who waited for it.
func TestHowAnAgentEndedIsAnExitCode(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		state  commands.State
		reason commands.Reason
		want   int
	}{
		{commands.Failed, commands.NoReason, exitFailed},
		{commands.Cancelled, commands.NoReason, exitCancelled},
		{commands.Expired, commands.DeadlineElapsed, exitTimedOut},
		{commands.Expired, commands.NoReason, exitNoSpoke},
		{commands.Unavailable, commands.PolicyDenied, exitRefused},
		{commands.Unavailable, commands.GrantDenied, exitRefused},
		{commands.Unavailable, commands.LinkRevoked, exitUntrusted},
		{commands.Unavailable, commands.NoReason, exitNoSpoke},
	} {
		v := hub.AgentView{}
		v.State, v.Reason = tt.state, tt.reason
		require.Equal(t, exitCode(tt.want), resultCode(v), "%s %s", tt.state, tt.reason)
	}
	done := hub.AgentView{}
	done.State = commands.Completed
	require.NoError(t, resultCode(done))
}
