package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

// A list says that it does not have all; of one in claim order that is not known.
func TestAListOfTasksSaysThatThereAreMore(t *testing.T) {
	t.Parallel()
	for want, of := range map[string]struct {
		ready    bool
		limit, n int
		more     bool
	}{
		"": {true, pageLength, pageLength - 1, false},
		"there may be more tasks than these: a list in claim order has 1000 at most; narrow it with --lane, --phase or --owner\n": {true, pageLength, pageLength, false},
		"there are more tasks than these; see more with --limit N\n":                                                              {true, 2, 2, true},
		"there are more tasks than these; see more with --before ID, of the last of these\n":                                      {false, pageLength, pageLength, true},
	} {
		var said bytes.Buffer
		(&app{err: &said}).sayMoreTasks(of.ready, of.limit, of.n, of.more)
		require.Equal(t, want, said.String())
	}
}
