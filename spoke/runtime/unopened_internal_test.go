package runtime

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/spawnmesh/spawnmesh/spoke/place"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
)

// A fault of the host is told from what is at a path, and from a host that has room for nothing.
func TestWhyAPathIsNotOpened(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]supervisor.Reason{
		unix.EMFILE: supervisor.NoResources, unix.EIO: supervisor.HostFault, place.ErrMoved: supervisor.HostFault,
		unix.ENOENT: supervisor.NotFound, unix.EACCES: supervisor.NotFound,
	} {
		got := unopened(&os.PathError{Op: "open", Path: "/x", Err: err}, supervisor.NotFound, "/x", "it cannot be opened: ")

		require.Equal(t, want, got.Reason, "%v", err)
		fault, everywhere := OfHost(got)
		require.Equal(t, want != supervisor.NotFound, fault, "%v", err)
		require.Equal(t, want == supervisor.NoResources, everywhere, "%v", err)
	}
}
