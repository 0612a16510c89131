package supervisor

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor/tree"
)

func TestWhatTheKernelDoesNotHoldIsSaid(t *testing.T) {
	t.Parallel()
	all := tree.Unheld(Limits{Memory: 1, Pids: 1, CPUs: 1}, errors.New("no group"))
	k := Kernel{Level: attempt.LevelTree, why: "no group", unheld: all, none: true}

	require.Equal(t, "tree: the shim looks for the processes of an agent and ends each, as no cgroup can be used here: no group; "+delegate, k.Kill())
	require.Equal(t, "measured several times a second, as the kernel does not hold them here: memory, processes; not held at all: processors; the reason is that of the kill level", k.Limits(false))
	require.Equal(t, "measured several times a second, as the kernel does not hold them here: memory; not held at all: processors; the reason is that of the kill level", k.Limits(true))
	require.NotContains(t, k.Limits(false), "no group", "the kill level says it")
	k = Kernel{Level: attempt.LevelCgroup, unheld: all}
	require.Equal(t, "measured several times a second, as the kernel does not hold them here: memory, processes (no group); not held at all: processors (no group); "+delegate, k.Limits(false))
	k.unheld[1].Why = "no pids"
	require.Contains(t, k.Limits(false), ": memory (no group), processes (no pids); ")
	k = Kernel{Level: attempt.LevelCgroup}
	require.Equal(t, "cgroup: the kernel ends all of an agent at once", k.Kill())
	require.Equal(t, "memory, processes and processors are held by the kernel", k.Limits(false))
}

// What is said of this host is what its agents then have.
func TestWhatIsSaidOfTheKernelIsSo(t *testing.T) {
	t.Parallel()
	k, err := Look()
	require.NoError(t, err)

	a, _ := start(t, Spec{Argv: []string{"/bin/sleep", "600"}, Dir: "/", Limits: Limits{Memory: 1 << 40, Pids: 1 << 20, CPUs: 1000}})

	require.Equal(t, a.Level(), k.Level)
	for _, m := range k.unheld {
		require.Contains(t, a.Unlimited(), string(m.Limit)+": ")
	}
	require.Equal(t, len(k.unheld) == 0, a.Unlimited() == "")
}
