package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Only what is spelt most like a word is named, and nothing where all of it differs.
func TestTheNearestWord(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"list"}, nearest("lists", []string{"lint", "list", "last"}))
	require.Equal(t, []string{"revoke", "review"}, nearest("rev", []string{"rave", "revoke", "review"}))
	require.Empty(t, nearest("x", []string{"ps", "ls"}))
	require.Empty(t, nearest("", []string{"ps"}))
	for pair, n := range map[[2]string]int{{"", "ab"}: 2, {"ab", ""}: 2, {"spwan", "spawn"}: 2, {"sate", "state"}: 1, {"same", "same"}: 0} {
		require.Equal(t, n, edits(pair[0], pair[1]), pair)
	}
}
