package spoke

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/spoke/policy"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
)

// Every limit of the policy reaches the supervisor.
func TestWhatThePolicyLetsAnAgentTake(t *testing.T) {
	t.Parallel()
	p, err := policy.Parse([]byte("version: 1\nlimits: {memory: 1GiB, pids: 7, cpu_time: 2h, cpus: 1.5, open_files: 64}\n"))
	require.NoError(t, err)

	require.Equal(t, supervisor.Limits{Memory: 1 << 30, Pids: 7, CPU: 2 * time.Hour, CPUs: 1500, Files: 64}, limitsOf(p))
}
