package supervisor

import (
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
)

func TestLeaseEndsTheTreeWithoutASpoke(t *testing.T) {
	t.Parallel()
	for name, noCgroup := range levels {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "attempt")
			spec, file := escapist(t, noCgroup)
			deadline := Boottime().Add(time.Second)
			spec.Deadline, spec.Slack = deadline, 100*time.Millisecond
			killedSpoke(t, dir, spec)
			five := pids(t, file, 5)

			// Nothing looks at the attempt until its shim is gone.
			eventually(t, "the end of the shim", func() bool {
				lock, err := attempt.TakeLock(dir)
				require.NoError(t, err)
				return lock != nil && attempt.Release(lock) == nil
			})

			require.GreaterOrEqual(t, Boottime(), deadline.Add(spec.Slack+spec.Grace))
			for _, pid := range five {
				require.False(t, alive(pid))
			}
			_, got := adopt(t, dir)
			require.Equal(t, LeaseExpired, got.Outcome)
			require.GreaterOrEqual(t, got.ReapedTotal, 5)
		})
	}
}

func TestRenew(t *testing.T) {
	t.Parallel()
	begin := Boottime()
	spec := sh("sleep 600")
	spec.Deadline, spec.Slack = begin.Add(400*time.Millisecond), time.Millisecond
	a, _ := start(t, spec)

	require.NoError(t, a.Renew(begin.Add(1200*time.Millisecond)))
	require.NoError(t, a.Renew(begin.Add(500*time.Millisecond)), "an earlier deadline is not an error")

	got := ended(t, a)
	require.Equal(t, LeaseExpired, got.Outcome)
	require.GreaterOrEqual(t, Boottime().Sub(begin), 1200*time.Millisecond, "and changes nothing")
	require.Less(t, Boottime().Sub(begin), 4*time.Second)
	require.NoError(t, a.Close())
	require.NoError(t, a.Renew(begin.Add(time.Hour)), "an attempt that is over has no deadline")
}

// An agent whose lease is renewed is left alone by its shim, by that of another
// spoke's process too.
func TestAgentOutlivesItsLeases(t *testing.T) {
	t.Parallel()
	const lease = 2 * time.Second
	gate := filepath.Join(t.TempDir(), "gate")
	spec := sh("until [ -e " + gate + " ]; do sleep 0.01; done; exit 7")
	begin := Boottime()
	spec.Deadline, spec.Slack = begin.Add(lease), time.Millisecond
	a, dir := start(t, spec)
	require.NoError(t, a.Renew(begin.Add(2*lease)))
	require.NoError(t, a.Close())
	require.Error(t, a.Renew(begin.Add(time.Hour)), "it runs on, and is told nothing here any more")
	b, _ := adopt(t, dir)

	require.NoError(t, b.Renew(begin.Add(time.Hour)))

	time.Sleep(begin.Add(2*lease + 200*time.Millisecond).Sub(Boottime())) // both leases pass
	require.True(t, alive(a.Pid()))
	require.Equal(t, a.Pid(), b.Pid())
	require.NoError(t, os.WriteFile(gate, nil, 0o600))
	got := ended(t, b)
	require.Equal(t, Exited, got.Outcome)
	require.Equal(t, 7, got.Code)
}

func TestAHugeLeaseIsNoEndedOne(t *testing.T) {
	t.Parallel()
	spec := sh("sleep 0.2")
	spec.Deadline, spec.Timeout, spec.Grace = math.MaxInt64, math.MaxInt64, math.MaxInt64
	a, _ := start(t, spec)

	require.NoError(t, a.Renew(math.MaxInt64))

	require.Equal(t, Exited, ended(t, a).Outcome)
}
