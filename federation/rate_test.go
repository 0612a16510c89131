package federation

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// delays returns how long each of these batches waits.
func delays(t *testing.T, m *meter, batches ...[][]byte) (list []time.Duration) {
	t.Helper()
	for _, batch := range batches {
		began := time.Now()
		require.NoError(t, m.wait(t.Context(), batch, func(d time.Duration) { list = append(list, d) }))
		require.Equal(t, list[len(list)-1], time.Since(began), "it is told what is waited")
	}
	return list
}

func TestAPeerAboveItsRateWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, batch := newMeter(Rate{Messages: 256, Bytes: 1 << 30, Burst: time.Second}), make([][]byte, 256)

		waited := delays(t, m, batch, batch)

		require.Zero(t, waited[0])
		require.InDelta(t, time.Second, waited[1], float64(10*time.Millisecond))
	})
}

func TestAPeerIsHeldToItsBytes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, batch := newMeter(Rate{Messages: 1e6, Bytes: 8 << 20, Burst: time.Second}), [][]byte{make([]byte, 8<<20)}

		waited := delays(t, m, batch, batch)

		require.Zero(t, waited[0])
		require.InDelta(t, time.Second, waited[1], float64(10*time.Millisecond))
	})
}

func TestABatchAboveTheBurstStillPasses(t *testing.T) {
	t.Parallel()
	m := newMeter(Rate{Messages: 1, Bytes: 1, Burst: time.Nanosecond})

	err := m.wait(t.Context(), make([][]byte, 10*most.Messages), func(time.Duration) {})

	require.NoError(t, err)
}

// What was not taken comes again, and counts once.
func TestAWaitForTheRateEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, batch := newMeter(Rate{Messages: 256, Bytes: 1 << 30, Burst: time.Second}), make([][]byte, 256)
		delays(t, m, batch)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()

		err := m.wait(ctx, batch, func(time.Duration) {})

		require.ErrorIs(t, err, context.Canceled)
		require.InDelta(t, time.Second, delays(t, m, batch)[0], float64(10*time.Millisecond))
	})
}

func TestRefusalsAreCountedByMinute(t *testing.T) {
	t.Parallel()
	var s refusals
	now := time.Unix(60*1000, 0)

	for i := range maxRefusals {
		require.Equal(t, maxRefusals-i, s.room(now), "the first ones are told as they are")
		x := s.count(signing.SigBad, store.Wrong, true, now)
		require.Equal(t, i == maxRefusals-1, x.suspend, "refusal %d", i+1)
	}
	require.Zero(t, s.room(now))
	for range 3 {
		require.False(t, s.count(signing.EnvJSON, store.Wrong, false, now).suspend, "it was decided")
	}

	require.Equal(t, maxRefusals, s.room(now.Add(time.Minute)))
	next := s.count(signing.SigBad, store.Wrong, true, now.Add(time.Minute))
	require.Equal(t, map[signing.Code]int{signing.EnvJSON: 3}, next.before)
	require.Empty(t, s.count(signing.SigBad, store.Wrong, true, now.Add(time.Minute)).before, "what a minute brought is told once")
	require.Empty(t, s.takeUntold(now.Add(2*time.Minute)), "all of it was told")
}

func TestWhatAnHonestPeerMayHaveWeighsLess(t *testing.T) {
	t.Parallel()
	var s refusals
	now := time.Unix(60*1000, 0)

	for range 100_000 {
		require.False(t, s.count(signing.TimeExpired, store.None, false, now).suspend)
	}
	for range maxStray - 1 {
		require.False(t, s.count(commands.ReUnknown, store.Stray, false, now).suspend)
	}

	require.True(t, s.count(commands.ReUnknown, store.Stray, false, now).suspend)
}
