package runtime

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
)

// A directory of PATH that cannot be read by a fault of the host does not say that there is no program. What a later one has is found all
// the same, and what came before is said. No other test of this package runs beside it: the disk fails for all of them.
func TestADiskThatFailsHasNoProgramMissing(t *testing.T) {
	top := t.TempDir()
	at := func(name string) string { return filepath.Join(top, name) }
	for _, dir := range []string{"broken", "none", "good", "closed"} {
		require.NoError(t, os.Mkdir(at(dir), 0o700))
	}
	require.NoError(t, os.WriteFile(at("good/tool"), nil, 0o700))
	require.NoError(t, os.WriteFile(at("closed/tool"), nil, 0o600))
	t.Cleanup(func() { stat = os.Stat })
	for _, tt := range []struct {
		path   string
		met    error
		found  string
		before bool
		reason supervisor.Reason
	}{
		{"broken none", unix.EIO, "", false, supervisor.HostFault},
		{"none broken closed", unix.EIO, "", false, supervisor.HostFault},
		{"broken", unix.ENOMEM, "", false, supervisor.NoResources},
		{"broken good", unix.EIO, "good/tool", true, ""},
		{"good broken", unix.EIO, "good/tool", false, ""},
		{"broken closed", unix.EACCES, "", false, supervisor.NotExecutable},
		{"broken none", unix.ENOENT, "", false, supervisor.NotFound},
	} {
		stat = func(name string) (fs.FileInfo, error) {
			if strings.HasPrefix(name, at("broken")) {
				return nil, &fs.PathError{Op: "stat", Path: name, Err: tt.met}
			}
			return os.Stat(name)
		}
		var dirs []string
		for _, dir := range strings.Fields(tt.path) {
			dirs = append(dirs, at(dir))
		}

		found, before, err := LookUp("tool", strings.Join(dirs, ":"))

		require.Equal(t, tt.before, before != nil, "%+v", tt)
		if tt.found != "" {
			require.NoError(t, err)
			require.Equal(t, at(tt.found), found)
			continue
		}
		var start *supervisor.StartError
		require.ErrorAs(t, err, &start)
		require.Equal(t, tt.reason, start.Reason, "%+v", tt)
		require.NotContains(t, start.Text, top)
	}
}
