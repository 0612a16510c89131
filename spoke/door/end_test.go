package door

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
)

// However long an agent asks to wait for an answer, one request is bounded.
func TestHowLongAnAgentWaits(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{"": longestWait, "0s": 0, "5s": 5 * time.Second, "30s": longestWait, "31s": longestWait, "9000h": longestWait} {
		got, err := waitOf(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"-1s", "30", "soon"} {
		_, err := waitOf(text)
		require.Equal(t, commands.Validation, commands.CodeOf(err), text)
	}
}
