package supervisor

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
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
		b, err := os.ReadFile(filepath.Join(dir, cgroupLink, controller+".max"))
		*held = err == nil && strings.TrimSpace(string(b)) != "max"
		if a.Level() == levelCgroup && !*held {
			require.Contains(t, a.Unlimited(), "no "+controller+" controller")
		}
	}
	if swap, err := os.ReadFile(filepath.Join(dir, cgroupLink, "memory.swap.max")); err == nil {
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

func TestDelegatedGroup(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	unit := filepath.Join(top, "system.slice", "spoke.service")
	own := filepath.Join(unit, "spoke")
	require.NoError(t, os.MkdirAll(own, 0o700))
	require.Empty(t, delegated(own, top))
	marked := unix.Setxattr(unit, "user.delegate", []byte("1"), 0) == nil || unix.Setxattr(unit, "trusted.delegate", []byte("1"), 0) == nil

	got := delegated(own, top)

	if !marked { // this file system keeps no such mark
		require.Empty(t, got)
		return
	}
	require.Equal(t, unit, got)
	require.Equal(t, unit, delegated(unit, top))
	require.Empty(t, delegated(filepath.Dir(unit), top))
}

// A group with processes of its own must not pass controllers on: with some of
// them its sub-groups could not be used any more.
func TestControllersPassOnlyThroughEmptyGroups(t *testing.T) {
	t.Parallel()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(t, err)
	_, top := cgroupMount(string(mounts))
	group := filepath.Join(top, "spawnmesh-test-"+newMarker())
	if top == "" || os.Mkdir(group, 0o755) != nil {
		require.ErrorContains(t, passOn("pids", group, 1), "no pids controller", "no group can be made here")
		return
	}
	sub := &cgroup{filepath.Join(group, "sub")}
	require.NoError(t, os.Mkdir(sub.path, 0o755))
	t.Cleanup(func() { require.NoError(t, (&cgroup{group}).remove()) })
	if !has(filepath.Join(group, "cgroup.controllers"), "pids") {
		require.ErrorContains(t, passOn("pids", group, 1), "no pids controller in "+group)
		return
	}
	p := exec.Command("/bin/sleep", "600")
	require.NoError(t, p.Start())
	defer func() { _ = p.Process.Kill(); _ = p.Wait() }()
	require.NoError(t, writeGroup(filepath.Join(group, "cgroup.procs"), strconv.Itoa(p.Process.Pid)))

	err = passOn("pids", group, 1)

	require.ErrorContains(t, err, "processes are in "+group+" itself")
	require.NoError(t, writeGroup(filepath.Join(top, "cgroup.procs"), strconv.Itoa(p.Process.Pid)))
	require.NoError(t, passOn("pids", group, 1))
	require.NoError(t, sub.set("pids", "pids.max", 7))
}
