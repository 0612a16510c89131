package main

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A shim is this program, entered before most of its packages are initialised: each
// agent pays for those that come first.
func TestAShimEntersFirst(t *testing.T) {
	t.Parallel()
	initialised := func(args ...string) int {
		c := exec.CommandContext(t.Context(), program, args...)
		c.Env = []string{"GODEBUG=inittrace=1"}
		out, err := c.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return strings.Count("\n"+string(out), "\ninit ")
	}

	shim, all := initialised("_shim", "-probe"), initialised("--help")

	t.Logf("%d packages are initialised before a shim, %d before main", shim, all)
	require.Positive(t, shim, "they are counted")
	require.LessOrEqual(t, shim, 28, "an import delays the shim; GODEBUG=inittrace=1 spawnmesh _shim -probe shows by what")
	require.Greater(t, all, 4*shim)
}

// What looks like a shim and is none is an unknown command.
func TestHalfAShimIsRefused(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"_shim"}, {"_shim", "/tmp"}, {"_shim", "a", "b", "c"}} {
		out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()

		require.Error(t, err)
		require.Contains(t, string(out), `there is no command "_shim"`)
	}
	out, err := exec.CommandContext(t.Context(), program, "_shim", "/no/such/place", strings.Repeat("0", 32)).CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "shim: chdir /no/such/place: no such file or directory")
}
