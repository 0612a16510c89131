package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The column of an age does not grow while a list is looked at: what is beside it would be cut elsewhere.
func TestAnAgeHasThreeCells(t *testing.T) {
	t.Parallel()
	for age := time.Duration(0); age < 99*24*time.Hour; age += 1 + age/50 {
		require.LessOrEqual(t, len(ago(time.Now().Add(-age))), 3, "%s", age)
	}
	require.Equal(t, "now", ago(time.Now()))
	require.Equal(t, "1m", ago(time.Now().Add(-100*time.Second)))
	require.Equal(t, "1h", ago(time.Now().Add(-100*time.Minute)))
	require.Equal(t, "47h", ago(time.Now().Add(-48*time.Hour+time.Minute)))
}
