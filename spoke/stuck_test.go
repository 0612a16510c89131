package spoke

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// A directory that cannot be removed is new once; doctor has it as long as it is there.
func TestWhatCannotBeRemovedIsSaidOnce(t *testing.T) {
	t.Parallel()
	var s stuck
	first := map[string]error{"/a/1": errors.New("busy")}
	require.Equal(t, first, s.set(first))

	again := s.set(map[string]error{"/a/1": errors.New("busy"), "/b/1": errors.New("full")})

	require.Equal(t, map[string]error{"/b/1": errors.New("full")}, again)
	require.Contains(t, s.check()[0].Problem, "2 directories cannot be removed; of /a/1: busy")
	require.Empty(t, s.set(nil))
	require.Empty(t, s.check())
}
