package spoke

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/spoke/isolation"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
)

// Every limit of the policy reaches the supervisor.
func TestWhatThePolicyLetsAnAgentTake(t *testing.T) {
	t.Parallel()
	p, err := policy.Parse([]byte("version: 1\nlimits: {memory: 1GiB, pids: 7, cpu_time: 2h, cpus: 1.5, open_files: 64, disk: 1GiB, files: 9, file_size: 1MiB, max_output: 3MiB, idle: 30m, reserve: 2GiB, reserve_files: 8}\n"))
	require.NoError(t, err)

	require.Equal(t, supervisor.Limits{Memory: 1 << 30, Pids: 7, CPU: 2 * time.Hour, CPUs: 1500, Files: 64, Disk: 1 << 30, Inodes: 9, FileSize: 1 << 20, Written: 3 << 20, Idle: 30 * time.Minute}, limitsOf(p))
	require.Equal(t, Room{2 << 30, 8}, Reserve(p))
	none, err := policy.Parse([]byte("version: 1\n"))
	require.NoError(t, err)
	require.Equal(t, supervisor.Limits{Disk: 64 << 30, Inodes: 4_000_000}, limitsOf(none))
	require.Equal(t, Room{1 << 30, 10_000}, Reserve(none))
}

func TestWhereTheFilesOfAnAgentCount(t *testing.T) {
	t.Parallel()
	r := &run{dir: "/a"}
	own := []string{"/a/work", "/a/tmp", "/a/home"}
	require.Equal(t, supervisor.Counted{Dirs: own}, r.counted(), "of what others have in shared directories nothing is its own")
	r.user = supervisor.User{ID: 7, Reaper: 6}
	require.Equal(t, supervisor.Counted{Dirs: own, Shared: isolation.SharedDirs}, r.counted())
}
