package supervisor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

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

	got, _, held := limited(t, "for i in $(seq 40); do sleep 600 & done; sleep 600", Limits{Memory: 1 << 30, Pids: 20})

	require.Equal(t, attempt.ProcessLimit, got.Breach.Limit)
	require.Equal(t, int64(20), got.Breach.Allowed)
	if held {
		require.Equal(t, 2, got.Code, "the shell could not fork")
		require.Positive(t, got.Refused)
		require.Less(t, got.ReapedTotal, 20)
		return
	}
	require.Equal(t, Limited, got.Outcome)
	require.Greater(t, got.Breach.Measured, int64(20))
	require.Greater(t, got.ReapedTotal, 20)
	require.Zero(t, got.Refused)
}

// hog takes 128 MiB and keeps them.
const hog = `awk 'BEGIN { s = "0123456789abcdef"; for (i = 0; i < 23; i++) s = s s; system("sleep 600") }'`

func TestLimitOfMemory(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{"of the agent": "exec " + hog, "of one of its processes": hog + "; echo $?; exit 0"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			got, held, _ := limited(t, script, Limits{Memory: 64 << 20, Pids: 1000})

			switch {
			case !held:
				require.Equal(t, Limited, got.Outcome)
				require.Greater(t, got.Breach.Measured, int64(64<<20))
				require.Equal(t, Breach{Limit: attempt.OOMKilled, Unit: attempt.Bytes, Allowed: 64 << 20, Measured: got.Breach.Measured}, got.Breach)
				require.Zero(t, got.OOMKills)
			case name == "of the agent":
				require.Equal(t, Signalled, got.Outcome)
				require.Positive(t, got.OOMKills)
				require.Equal(t, attempt.OOMKilled, got.Breach.Limit)
				require.Contains(t, got.Reason, "limited to 67108864 bytes of memory")
			default:
				require.Equal(t, Exited, got.Outcome)
				require.Positive(t, got.OOMKills)
				require.Equal(t, int64(4), got.Stdout.Bytes, "137 and a line break")
				require.Zero(t, got.Breach)
			}
		})
	}
}

// measured runs a script whose limits the shim holds by measuring.
func measured(t *testing.T, script string, l Limits) Exit {
	t.Helper()
	spec := sh(script)
	spec.NoCgroup, spec.Limits = true, l
	a, _ := start(t, spec)
	exit := ended(t, a)
	require.Equal(t, a.Unlimited(), exit.Unlimited)
	return exit
}

// A process is of the tree however it has come about.
func TestMeasuredMemoryIsThatOfTheWholeTree(t *testing.T) {
	t.Parallel()

	got := measured(t, "(setsid env -i /bin/sh -c '"+strings.ReplaceAll(hog, "'", `'"'"'`)+"' </dev/null >/dev/null 2>&1 &); sleep 600", Limits{Memory: 64 << 20})

	require.Equal(t, Limited, got.Outcome)
	require.Equal(t, attempt.OOMKilled, got.Breach.Limit)
	require.Equal(t, "limits measured several times a second and not held by the kernel: memory: cgroups are left alone", got.Unlimited)
}

// Memory that processes share is not taken more than once.
func TestSharedMemoryIsMeasuredOnce(t *testing.T) {
	t.Parallel()

	got := measured(t, `x=$(head -c 50000000 /dev/zero | tr '\0' a); for i in 1 2 3 4; do (sleep 2; :) & done; wait; echo ${#x}`, Limits{Memory: 200 << 20})

	require.Equal(t, Exited, got.Outcome, "%+v", got.Breach)
	require.Zero(t, got.Code)
}

func TestLimitOfProcessorTime(t *testing.T) {
	t.Parallel()
	for _, noCgroup := range []bool{false, true} {
		spec := sh("(while :; do :; done) & wait")
		spec.NoCgroup, spec.Limits, spec.Grace = noCgroup, Limits{CPU: 300 * time.Millisecond}, time.Minute
		a, _ := start(t, spec)
		require.Empty(t, a.Unlimited())

		got := ended(t, a)

		require.Equal(t, Limited, got.Outcome)
		require.Equal(t, Breach{Limit: attempt.CPULimit, Unit: attempt.Milliseconds, Allowed: 300, Measured: got.Breach.Measured}, got.Breach)
		require.Greater(t, got.Breach.Measured, int64(300))
		require.Equal(t, "SIGTERM", got.Signal, "it had time to end")
	}
}

func TestLimitOfOpenFiles(t *testing.T) {
	t.Parallel()
	for files, want := range map[int64]string{0: "1024\n", 64: "64\n64\n"} {
		spec := sh("ulimit -Sn; ulimit -Hn")
		spec.Limits.Files = files
		a, dir := start(t, spec)
		require.Empty(t, a.Unlimited())
		ended(t, a)

		require.True(t, strings.HasPrefix(read(t, dir, "stdout"), want), read(t, dir, "stdout"))
	}
}

func TestLimitsWithoutACgroup(t *testing.T) {
	t.Parallel()
	got := measured(t, "exit 0", Limits{Pids: 20, CPUs: 500})

	require.Equal(t, "limits measured several times a second and not held by the kernel: processes: cgroups are left alone; limits not enforced: processors: cgroups are left alone", got.Unlimited)
	require.Equal(t, Exited, got.Outcome)
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
