package layout

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// readUnit returns the settings of an example of a systemd unit by their keys; none is
// there twice.
func readUnit(t *testing.T, name string) map[string]string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("../../docs/examples", name))
	require.NoError(t, err)
	settings := map[string]string{}
	for line := range strings.Lines(string(raw)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || line[0] == '[' {
			continue
		}
		key, value, found := strings.Cut(line, "=")
		require.True(t, found, line)
		require.NotContains(t, settings, key)
		settings[key] = value
	}
	return settings
}

// With another KillMode a restart of the unit ends every agent.
func TestTheUnitOfASpokeLeavesItsAgentsAlone(t *testing.T) {
	unit := readUnit(t, "spawnmesh-spoke.service")

	require.Equal(t, "process", unit["KillMode"])
	require.Equal(t, "yes", unit["Delegate"], "limits of agents are cgroups of the unit")
	require.Equal(t, "spoke", unit["DelegateSubgroup"], "a group with groups below it has no processes")
	require.Equal(t, "continue", unit["OOMPolicy"])
}

// What the units start are commands of the program, with flags that it has.
func TestTheUnitsStartWhatTheProgramHas(t *testing.T) {
	program := filepath.Join(t.TempDir(), "spawnmesh")
	out, err := exec.CommandContext(t.Context(), "make", "-C", "../..", "build", "BIN="+program).CombinedOutput()
	require.NoError(t, err, "%s", out)
	for name, keys := range map[string][]string{"spawnmesh-hub.service": {"ExecStart"}, "spawnmesh-spoke.service": {"ExecStart", "ExecReload"}} {
		unit := readUnit(t, name)
		for _, key := range keys {
			words := strings.Fields(unit[key])
			require.Equal(t, "/usr/local/bin/spawnmesh", words[0])
			command, _, _ := strings.Cut(strings.Join(words[1:], " "), " --")

			help, err := exec.CommandContext(t.Context(), program, append(words[1:], "--help")...).CombinedOutput() // flags before it are parsed

			require.NoError(t, err, "%s of %s: %s", key, name, help)
			require.Contains(t, string(help), "\n  spawnmesh "+command, "%s of %s", key, name)
		}
	}
}
