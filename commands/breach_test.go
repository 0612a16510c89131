package commands

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhichLimitEndedAnAgent(t *testing.T) {
	t.Parallel()
	for want, b := range map[string]Breach{
		"ended at its timeout: 1.503s of 1.5s": {DeadlineElapsed, "ms", 1500, 1503},
		"out of memory: 520.5 MiB of 512 MiB":  {OOMKilled, "bytes", 512 << 20, 520<<20 + 1<<19},
		"out of memory: 1000 KiB of 999 bytes": {OOMKilled, "bytes", 999, 1000 << 10},
		"out of memory: 64.25 GiB of 64 GiB":   {OOMKilled, "bytes", 64 << 30, 64<<30 + 1<<28},
		"out of processes: 21 of 20 processes": {ProcessLimit, "processes", 20, 21},
	} {
		r := Result{State: Failed, Reason: b.Limit, Exit: Exit{Code: 1, Breach: &b}}

		require.Equal(t, want, r.Sentence())
	}
}

// Every limit is a reason of a task, and has words for people.
func TestLimitsAreReasons(t *testing.T) {
	t.Parallel()
	require.Subset(t, Reasons, Breaches)
	for _, r := range Breaches {
		require.NotEmpty(t, breachWords[r], r)
	}
}
