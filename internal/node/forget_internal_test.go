package node

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/blob"
	"github.com/spawnmesh/spawnmesh/internal/instance"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
)

// What nobody needs goes with its bytes; what cannot be removed stops nothing else and is found again; what was written anew stays.
func TestBytesThatNobodyNeedsGo(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	dir := t.TempDir()
	blobs, err := blob.Open(dir)
	require.NoError(t, err)
	n := &Node{Instance: &instance.Instance{DB: s.DB}, Log: slog.New(slog.DiscardHandler)}
	write := func(text string, known bool, age time.Duration) string {
		d, size, err := blobs.Write(strings.NewReader(text), 100)
		require.NoError(t, err)
		digits := strings.TrimPrefix(d.String(), "sha256-")
		path := filepath.Join(dir, digits[:2], digits)
		require.NoError(t, os.Chtimes(path, time.Time{}, time.Now().Add(-age)))
		if known {
			require.NoError(t, s.DB.KeepBlob(t.Context(), commands.Blob{Digest: d.String(), Size: size}, "test"))
		}
		return path
	}
	const day = 24 * time.Hour
	old, stuck, again := write("old", true, 2*day), write("stuck", true, 2*day), write("again", true, 0)
	require.NoError(t, s.Exec(`UPDATE blobs SET at = at - interval '2 days'`))
	known, nobodys, fresh := write("known", true, 2*day), write("nobody's", false, 2*day), write("fresh", false, time.Hour)
	require.NoError(t, os.Remove(stuck))
	require.NoError(t, os.MkdirAll(filepath.Join(stuck, "x"), 0o700)) // which cannot be removed as a file
	require.NoError(t, os.Chtimes(stuck, time.Time{}, time.Now().Add(-2*day)))
	p, err := blobs.Part("gone", blob.Of(nil), 1)
	require.NoError(t, err)
	require.NoError(t, p.Close())
	now := time.Now()

	require.Error(t, n.forgetRows(t.Context(), blobs, now))
	for first := range 256 {
		_ = n.forgetFiles(t.Context(), blobs, byte(first), now)
	}
	require.NoError(t, n.forgetParts(t.Context(), blobs, now))

	require.NoFileExists(t, old)
	require.NoFileExists(t, nobodys)
	for _, path := range []string{known, fresh, again} {
		require.FileExists(t, path)
	}
	parts := func() int {
		list, err := blobs.Parts()
		require.NoError(t, err)
		return len(list)
	}
	require.Equal(t, 1, parts(), "it may be under way")
	require.NoError(t, n.forgetParts(t.Context(), blobs, now.Add(2*time.Hour)))
	require.Zero(t, parts())
}
