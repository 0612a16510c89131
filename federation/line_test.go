package federation

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// What the log says to run names the instance, as a shell takes it.
func TestACommandLineInTheLogCanBePasted(t *testing.T) {
	t.Parallel()
	b := &Board{Dir: "/srv/it's"}

	line := b.line("keys", "revoke", "ed25519:kkk", "--reason", "restored")

	require.Equal(t, `spawnmesh --data-dir '/srv/it'\''s' keys revoke ed25519:kkk --reason restored`, line)
}
