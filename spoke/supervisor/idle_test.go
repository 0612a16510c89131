package supervisor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
)

func TestAnIdleAgentEnds(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"that says nothing":   "trap 'exit 3' TERM; sleep 600 & wait",
		"that works silently": "trap 'exit 3' TERM; while :; do :; done",
		"after some words":    "trap 'exit 3' TERM; echo a; echo b >&2; sleep 600 & wait",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := sh(script)
			spec.Limits.Idle, spec.Grace = time.Second, time.Minute
			a, _ := start(t, spec)

			got := ended(t, a)

			require.Equal(t, Limited, got.Outcome)
			require.Equal(t, 3, got.Code, "it had time to end")
			require.Equal(t, Breach{Limit: attempt.IdleTimeout, Unit: attempt.Milliseconds, Allowed: 1000, Measured: got.Breach.Measured}, got.Breach)
			require.GreaterOrEqual(t, got.Breach.Measured, int64(1000))
		})
	}
}

// Each stream for itself keeps an agent from being idle.
func TestAnAgentThatSaysSomethingIsNotIdle(t *testing.T) {
	t.Parallel()
	spec := sh("for i in 1 2 3 4 5 6; do sleep 0.6; printf .; sleep 0.6; printf . >&2; done; exit 4")
	spec.Limits.Idle = 3 * time.Second
	a, _ := start(t, spec)

	got := ended(t, a)

	require.Equal(t, Exited, got.Outcome, "%+v", got.Breach)
	require.Equal(t, 4, got.Code)
}

// What is given for the end of an idle agent, its lease or its timeout may be over before.
func TestOfSeveralTimesTheFirstCounts(t *testing.T) {
	t.Parallel()
	for want, change := range map[Outcome]func(*Spec){
		TimedOut:     func(s *Spec) { s.Timeout = 300 * time.Millisecond },
		LeaseExpired: func(s *Spec) { s.Deadline, s.Slack = Boottime().Add(2*time.Second), 1 },
		Limited:      func(s *Spec) { s.Timeout, s.Limits.Idle = time.Hour, 300*time.Millisecond },
	} {
		spec := sh("sleep 600")
		spec.Limits.Idle = time.Hour
		change(&spec)
		a, _ := start(t, spec)

		require.Equal(t, want, ended(t, a).Outcome)
	}
}

func TestLimitOfOutput(t *testing.T) {
	t.Parallel()
	for stream, script := range map[string]string{"stdout": "yes", "stderr": "yes >&2"} {
		spec := sh(script)
		spec.OutputCap, spec.Limits.Written = 1000, 1<<20
		a, _ := start(t, spec)

		got := ended(t, a)

		require.Equal(t, Limited, got.Outcome, stream)
		require.Equal(t, Breach{Limit: attempt.OutputLimit, Unit: attempt.Bytes, Allowed: 1 << 20, Measured: got.Breach.Measured}, got.Breach)
		require.Greater(t, got.Breach.Measured, int64(1<<20))
		require.Equal(t, max(got.Stdout.Bytes, got.Stderr.Bytes), got.Breach.Measured, "one figure, wherever it is shown")
	}
	spec := sh("head -c 1000 /dev/zero; head -c 1000 /dev/zero >&2")
	spec.Limits.Written = 1000
	a, _ := start(t, spec)
	require.Equal(t, Exited, ended(t, a).Outcome, "of each stream")
}
