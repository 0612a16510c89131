package isolation

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
)

// Whoever has no bubble is told what to run for one.
func TestWhyThereIsNoBubble(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.Empty(t, noNamespaces(dir))
	for name, value := range map[string]string{"user/max_user_namespaces": "0", "kernel/unprivileged_userns_clone": "1", "kernel/apparmor_restrict_unprivileged_userns": "0"} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(value+"\n"), 0o600))
	}
	require.Equal(t, "this kernel lets no user make namespaces: run sysctl -w user.max_user_namespaces=15000", noNamespaces(dir))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "user", "max_user_namespaces"), []byte("100\n"), 0o600))
	require.Empty(t, noNamespaces(dir))

	require.ErrorContains(t, (&Isolation{}).probe(t.Context(), commands.IsolationUserBubble), "bwrap is not installed; it is in the package bubblewrap of most systems: install that (apt-get install bubblewrap")
}
