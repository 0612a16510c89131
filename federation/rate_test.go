package federation

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/signing"
)

func TestAPeerAboveItsRateWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMeter(Rate{Messages: 256, Bytes: 1 << 30, Burst: time.Second})
		batch := make([][]byte, 256)
		first, err := m.wait(t.Context(), batch)
		require.NoError(t, err)

		second, err := m.wait(t.Context(), batch)

		require.NoError(t, err)
		require.Zero(t, first)
		require.InDelta(t, time.Second, second, float64(10*time.Millisecond))
	})
}

func TestAPeerIsHeldToItsBytes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMeter(Rate{Messages: 1e6, Bytes: 8 << 20, Burst: time.Second})
		batch := [][]byte{make([]byte, 8<<20)}
		_, err := m.wait(t.Context(), batch)
		require.NoError(t, err)

		waited, err := m.wait(t.Context(), batch)

		require.NoError(t, err)
		require.InDelta(t, time.Second, waited, float64(10*time.Millisecond))
	})
}

func TestABatchAboveTheBurstStillPasses(t *testing.T) {
	t.Parallel()
	m := newMeter(Rate{Messages: 1, Bytes: 1, Burst: time.Nanosecond})

	_, err := m.wait(t.Context(), make([][]byte, 10*most.Messages))

	require.NoError(t, err)
}

func TestAWaitForTheRateEndsWithItsContext(t *testing.T) {
	t.Parallel()
	m := newMeter(Rate{Messages: 1, Bytes: 1 << 30, Burst: time.Second})
	_, err := m.wait(t.Context(), make([][]byte, most.Messages))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	_, err = m.wait(ctx, make([][]byte, most.Messages))

	require.ErrorIs(t, err, context.Canceled)
}

func TestStrikesAreCountedByMinute(t *testing.T) {
	t.Parallel()
	var s strikes
	now := time.Unix(60*1000, 0)

	for i := range maxStrikes {
		x := s.struck(signing.SigBad, now)
		require.True(t, x.tell, "the first ones are told as they are")
		require.Equal(t, i == maxStrikes-1, x.suspend, "strike %d", i+1)
	}
	for range 3 {
		x := s.struck(signing.EnvJSON, now)
		require.False(t, x.tell)
		require.False(t, x.suspend, "it was decided")
	}

	next := s.struck(signing.SigBad, now.Add(time.Minute))
	require.Equal(t, map[signing.Code]int{signing.EnvJSON: 3}, next.before)
	require.True(t, next.tell)
	require.Empty(t, s.struck(signing.SigBad, now.Add(time.Minute)).before, "what a minute brought is told once")
	require.Empty(t, s.settle(now.Add(2*time.Minute)), "all of it was told")
}
