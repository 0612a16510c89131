package supervisor_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor/tree"
)

// An agent with a user of its own that looks like the shim of another attempt, of which no start is on record, holds up nothing of that.
func TestAnotherUserDoesNotPlayAShim(t *testing.T) {
	t.Parallel()
	marker := "played-" + t.Name()
	dir, err := os.MkdirTemp("", "spawnmesh-shim-")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, attempt.ShimArg), []byte("sleep 600\n"), 0o644))
	known := supervisor.Known{Marker: marker}
	for other, id := range map[bool]uint32{false: uint32(os.Getuid()), true: 70_009} {
		if other && os.Geteuid() != 0 {
			continue // only root starts it
		}
		player := exec.Command("/bin/sh", attempt.ShimArg, ".", marker)
		player.Dir = dir
		player.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: id, Gid: uint32(os.Getgid()), NoSetGroups: true}, Setpgid: true}
		require.NoError(t, player.Start())
		require.Eventually(t, func() bool {
			m, err := tree.ShimMarker(player.Process.Pid)
			return err == nil && m == marker
		}, 10*time.Second, time.Millisecond)

		_, lives, err := supervisor.UserBelow(known)
		alive := supervisor.Lives(known)
		require.NoError(t, syscall.Kill(-player.Process.Pid, syscall.SIGKILL))
		_ = player.Wait()

		require.NoError(t, err)
		require.Equal(t, !other, lives)
		require.Equal(t, !other, alive)
	}
}
