package federation

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Five numbers an hour may be used twice, the sixth is too much; an hour later it begins anew. What comes before the sides have
// compared is the same reuse.
func TestHowOftenNumbersAreUsedTwice(t *testing.T) {
	t.Parallel()
	var d reuse
	now := time.Now()
	compared := func() { d.number = 0 }
	for n := range int64(maxReuses) {
		for range 10 {
			require.False(t, d.raise(n+1, now.Add(time.Duration(n)*time.Minute)), "reuse %d", n)
		}
		compared()
	}

	require.True(t, d.raise(9, now.Add(time.Hour)), "within the hour")
	require.EqualValues(t, 9, d.number)
	compared()
	require.False(t, d.raise(10, now.Add(time.Hour+time.Second)))
	require.Equal(t, 1, d.raised)
}
