package supervisor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
)

// limited starts an agent with limits and reports which of the two the kernel
// holds it to, as the files of its cgroup show. What is not held has to be said,
// by the running agent and by its exit.
func limited(t *testing.T, script string, l Limits) (exit Exit, memory, pids bool) {
	t.Helper()
	gate := filepath.Join(t.TempDir(), "gate")
	spec := sh("until [ -e " + gate + " ]; do sleep 0.01; done; " + script)
	spec.Limits = l
	a, dir := start(t, spec)
	for controller, held := range map[string]*bool{"memory": &memory, "pids": &pids} {
		b, err := os.ReadFile(filepath.Join(dir, attempt.CgroupLink, controller+".max"))
		*held = err == nil && strings.TrimSpace(string(b)) != "max"
		if a.Level() == attempt.LevelCgroup && !*held {
			require.Contains(t, a.Unlimited(), "no "+controller+" controller")
		}
	}
	if swap, err := os.ReadFile(filepath.Join(dir, attempt.CgroupLink, "memory.swap.max")); err == nil {
		require.Equal(t, "0\n", string(swap))
	} else if memory {
		require.Contains(t, a.Unlimited(), "swap can be used")
	}
	require.Equal(t, memory && pids && !strings.Contains(a.Unlimited(), "swap"), a.Unlimited() == "", a.Unlimited())
	require.NoError(t, os.WriteFile(gate, nil, 0o600))
	exit = ended(t, a)
	require.Equal(t, a.Unlimited(), exit.Unlimited)
	t.Logf("level %s; memory limited: %v, processes limited: %v; %s", a.Level(), memory, pids, a.Unlimited())
	return exit, memory, pids
}

func TestLimitOfProcesses(t *testing.T) {
	t.Parallel()

	got, _, held := limited(t, "for i in $(seq 40); do sleep 600 & done; exit 0", Limits{Memory: 1 << 30, Pids: 20})

	if held {
		require.Equal(t, 2, got.Code, "the shell could not fork")
		require.Positive(t, got.Refused)
		require.Less(t, got.ReapedTotal, 20)
		return
	}
	require.Equal(t, 0, got.Code)
	require.Zero(t, got.Refused)
	require.Contains(t, got.Unlimited, "limits not enforced: ")
}

// hog takes 128 MiB and ends.
const hog = `awk 'BEGIN { s = "0123456789abcdef"; for (i = 0; i < 23; i++) s = s s }'`

func TestLimitOfMemory(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{"of the agent": "exec " + hog, "of one of its processes": hog + "; echo $?; exit 0"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			got, held, _ := limited(t, script, Limits{Memory: 64 << 20, Pids: 1000})

			switch {
			case !held:
				require.Equal(t, 0, got.Code)
				require.Zero(t, got.OOMKills)
				require.Contains(t, got.Unlimited, "limits not enforced: ")
			case name == "of the agent":
				require.Equal(t, Signalled, got.Outcome)
				require.Positive(t, got.OOMKills)
				require.Contains(t, got.Reason, "limited to 67108864 bytes of memory")
			default:
				require.Equal(t, Exited, got.Outcome)
				require.Positive(t, got.OOMKills)
				require.Equal(t, int64(4), got.Stdout.Bytes, "137 and a line break")
			}
		})
	}
}

func TestLimitsWithoutACgroup(t *testing.T) {
	t.Parallel()
	spec := sh("exit 0")
	spec.NoCgroup, spec.Limits = true, Limits{Pids: 20}
	a, _ := start(t, spec)

	require.Equal(t, "limits not enforced: cgroups are left alone", a.Unlimited())
	require.Equal(t, a.Unlimited(), ended(t, a).Unlimited)
}

func TestNoLimitsNothingToSay(t *testing.T) {
	t.Parallel()
	for _, noCgroup := range levels {
		spec := sh("exit 0")
		spec.NoCgroup = noCgroup
		a, _ := start(t, spec)

		require.Empty(t, ended(t, a).Unlimited)
	}
}
