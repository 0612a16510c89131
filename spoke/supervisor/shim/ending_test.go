package shim

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
)

// An agent with a user of its own failed by its processes where it was seen to have as many as it may.
func TestWhoFailsWithAsManyProcessesAsItMayHave(t *testing.T) {
	t.Parallel()
	full := attempt.Breach{Limit: attempt.ProcessLimit, Unit: attempt.Processes, Allowed: 20, Measured: 20}
	for name, tt := range map[string]struct {
		exit       attempt.Exit
		most, seen int64
		want       attempt.Breach
	}{
		"it fails":               {attempt.Exit{Outcome: attempt.Exited, Code: 2}, 20, 20, full},
		"it is ended":            {attempt.Exit{Outcome: attempt.Signalled}, 20, 20, full},
		"it goes on":             {attempt.Exit{Outcome: attempt.Exited}, 20, 20, attempt.Breach{}},
		"it had fewer":           {attempt.Exit{Outcome: attempt.Exited, Code: 2}, 20, 19, attempt.Breach{}},
		"it is killed":           {attempt.Exit{Outcome: attempt.Killed}, 20, 20, attempt.Breach{}},
		"it has no user to hold": {attempt.Exit{Outcome: attempt.Exited, Code: 2}, 0, 20, attempt.Breach{}},
	} {
		require.Equal(t, tt.want, crowded(tt.exit, tt.most, tt.seen), name)
	}
}

// What the kernel has held an agent to ended it only where the agent failed.
func TestWhatTheKernelHeld(t *testing.T) {
	t.Parallel()
	limits := attempt.Limits{Memory: 1000, Pids: 20}
	timeout := attempt.Breach{Limit: attempt.DeadlineElapsed, Unit: attempt.Milliseconds, Allowed: 1, Measured: 2}
	memory := func(n int64) attempt.Breach {
		return attempt.Breach{Limit: attempt.OOMKilled, Unit: attempt.Bytes, Allowed: 1000, Measured: n}
	}
	tests := map[string]struct {
		exit        attempt.Exit
		memory, pid int64 // the peaks
		want        attempt.Breach
	}{
		"an agent out of memory":                  {attempt.Exit{Outcome: attempt.Signalled, Signal: "SIGKILL", OOMKills: 1}, 1000, 0, memory(1000)},
		"without a peak":                          {attempt.Exit{Outcome: attempt.Signalled, OOMKills: 1}, 0, 0, memory(1000)},
		"one of its processes, and then it fails": {attempt.Exit{Outcome: attempt.Exited, Code: 137, OOMKills: 1, Refused: 1}, 1004, 0, memory(1004)},
		"one of its processes, and it goes on":    {attempt.Exit{Outcome: attempt.Exited, OOMKills: 1}, 1000, 0, attempt.Breach{}},
		"no process more":                         {attempt.Exit{Outcome: attempt.Exited, Code: 2, Refused: 9}, 0, 20, attempt.Breach{Limit: attempt.ProcessLimit, Unit: attempt.Processes, Allowed: 20, Measured: 20}},
		"a failure of another kind":               {attempt.Exit{Outcome: attempt.Exited, Code: 2}, 900, 3, attempt.Breach{}},
		"a timeout":                               {attempt.Exit{Outcome: attempt.TimedOut, OOMKills: 1, Breach: timeout}, 1000, 0, timeout},
		"a kill":                                  {attempt.Exit{Outcome: attempt.Killed, OOMKills: 1}, 1000, 0, attempt.Breach{}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tt.want, heldByKernel(tt.exit, limits, tt.memory, tt.pid))
		})
	}
}
