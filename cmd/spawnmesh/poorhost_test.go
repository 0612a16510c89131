package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/fleet"
)

// Hub and spoke work on a host that gives them little, or says strange things of itself.
func TestHostsThatGiveLittle(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		before string   // in the shell that starts them
		env    []string // of theirs
	}{
		"64 open files": {"ulimit -n 64", nil},
		"no place for temporaries, no home, no programs": {"umask 000", []string{"TMPDIR=/proc/none", "HOME=/proc", "XDG_CONFIG_HOME=/proc", "XDG_STATE_HOME=/proc", "PATH=/proc/none"}},
		"a time zone and a language that are none":       {"", []string{"TZ=Mars/Olympus", "LC_ALL=xx_YY.UTF-99", "LANG=xx"}},
		"no home and no language, far ahead":             {"unset HOME XDG_STATE_HOME XDG_CONFIG_HOME LANG", []string{"TZ=Pacific/Kiritimati", "LC_ALL=C"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := startMesh(t)
			h := hand{t: t, dir: m.Hub.Dir}
			poor := filepath.Join(m.Dir, "poor")
			require.NoError(t, os.WriteFile(poor, fmt.Appendf(nil, "#!/bin/sh\n%s\nexec %s \"$@\"\n", tt.before, program), 0o755))
			for _, n := range []*fleet.Process{m.Hub, m.Spokes["attic"]} {
				require.NoError(t, n.Stop(t.Context()))
				n.Bin, n.Env = poor, tt.env
				require.NoError(t, n.Start(t.Context()))
			}
			require.NoError(t, m.AwaitLink(t.Context(), "attic"))

			var ids []string
			for range 8 {
				ids = append(ids, h.spawn("--spoke", "attic", "--", "/bin/sh", "-c", "sleep 0.2; echo done"))
			}

			for _, id := range ids {
				require.Equal(t, commands.Completed, h.ends(id).State)
				require.Equal(t, "done\n", h.do("logs", "-f", id))
			}
		})
	}
}

// Where there is no memory for it a hub ends before it has begun anything: its directory is not there, and the next start is the first.
func TestAHostWithoutMemoryStartsNothing(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "hub")

	err := exec.CommandContext(t.Context(), "/bin/sh", "-c", `ulimit -v 65536; exec "$0" hub run --data-dir "$1"`, program, dir).Run()

	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	require.NoDirExists(t, dir)
}
