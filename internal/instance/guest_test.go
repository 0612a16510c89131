package instance_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/internal/instance"
)

// Whoever stops a private server tells commands that use it, and waits for them.
func TestACloseWaitsForCommandsThatUseTheDatabase(t *testing.T) {
	t.Parallel()
	base, err := os.MkdirTemp("", "spawnmesh-instance-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	require.NoError(t, os.Chmod(base, 0o755)) // where we are root, the server runs as somebody else
	o := instance.Options{Dir: filepath.Join(base, "data"), Log: slog.New(slog.DiscardHandler)}
	owner, err := instance.Open(t.Context(), o, true)
	require.NoError(t, err)
	guest, err := instance.Visit(t.Context(), o, false)
	require.NoError(t, err)
	require.False(t, guest.Leaving())
	_, err = guest.DB.Now(t.Context())
	require.NoError(t, err)
	began := time.Now()

	require.NoError(t, owner.Close(t.Context()))

	require.True(t, guest.Leaving(), "it is told")
	require.GreaterOrEqual(t, time.Since(began), 2*time.Second, "it is waited for, and not for ever")
	require.NoError(t, guest.Close(t.Context()))
}
