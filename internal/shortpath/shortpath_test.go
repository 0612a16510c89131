package shortpath_test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/internal/shortpath"
)

// A socket can be made and reached however deep its directory is.
func TestASocketInADeepDirectory(t *testing.T) {
	t.Parallel()
	for _, depth := range []int{0, 1, 20} {
		dir := filepath.Join(t.TempDir(), strings.Repeat("/directory", depth))
		require.NoError(t, os.MkdirAll(dir, 0o700))
		path := filepath.Join(dir, "sock")
		name, done, err := shortpath.Of(path)
		require.NoError(t, err)
		l, err := net.Listen("unix", name)
		require.NoError(t, err)
		done()
		l.(*net.UnixListener).SetUnlinkOnClose(false)

		name, done, err = shortpath.Of(path)
		require.NoError(t, err)
		c, err := net.Dial("unix", name)
		require.NoError(t, err)
		done()
		require.NoError(t, c.Close())
		require.NoError(t, l.Close())
	}
	_, _, err := shortpath.Of(filepath.Join(t.TempDir(), strings.Repeat("/missing", 20), "sock"))
	require.ErrorIs(t, err, os.ErrNotExist)
}
