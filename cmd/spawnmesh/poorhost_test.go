package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/fleet"
)

// Hub and spoke work on a host that gives them little, or says strange things of itself: all their slots at once, and they are the same
// processes after that.
func TestHostsThatGiveLittle(t *testing.T) {
	t.Parallel()
	const slots = 8
	for name, tt := range map[string]struct {
		before string   // in the shell that starts them
		env    []string // of theirs
		file   string   // of each of them below /proc,
		has    string   // that has this
	}{
		"64 open files": {"ulimit -n 64", nil, "limits", `Max open files +64 +64 `},
		"no place for temporaries, no home, no programs": {"umask 000",
			[]string{"TMPDIR=/proc/none", "HOME=/proc", "XDG_CONFIG_HOME=/proc", "XDG_STATE_HOME=/proc", "PATH=/proc/none"}, "status", `Umask:\s+0000\n`},
		"a time zone and a language that are none": {"", []string{"TZ=Mars/Olympus", "LC_ALL=xx_YY.UTF-99", "LANG=xx"}, "comm", "."},
		"no home and no language, far ahead":       {"unset HOME XDG_STATE_HOME XDG_CONFIG_HOME LANG", []string{"TZ=Pacific/Kiritimati", "LC_ALL=C"}, "comm", "."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := startMesh(t, "--slots", strconv.Itoa(slots))
			h, notes := hand{t: t, dir: m.Hub.Dir}, t.TempDir()
			poor := filepath.Join(m.Dir, "poor")
			require.NoError(t, os.WriteFile(poor, fmt.Appendf(nil, "#!/bin/sh\n%s\nexec %s \"$@\"\n", tt.before, program), 0o755))
			of := []*fleet.Process{m.Hub, m.Spokes["attic"]}
			for _, n := range of {
				require.NoError(t, n.Stop(t.Context()))
				n.Bin, n.Env = poor, tt.env
				require.NoError(t, n.Start(t.Context()))
			}
			require.NoError(t, m.AwaitLink(t.Context(), "attic"))

			var ids []string
			for n := range slots + 1 {
				ids = append(ids, h.spawn("--spoke", "attic", "--", "/bin/sh", "-c", `: >"$0/$1"; until [ -e "$0/end" ]; do /bin/sleep 0.05; done; echo done`, notes, strconv.Itoa(n)))
			}
			require.NoError(t, fleet.Poll(t.Context(), time.Minute, "waiting for all that have a slot", func() (bool, error) {
				begun, err := os.ReadDir(notes)
				return len(begun) >= slots, err
			}))
			require.NoError(t, os.WriteFile(filepath.Join(notes, "end"), nil, 0o600))

			for _, id := range ids {
				require.Equal(t, commands.Completed, h.ends(id).State)
				require.Equal(t, "done\n", h.do("logs", "-f", id))
			}
			for _, n := range of {
				text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(n.Cmd.Process.Pid), tt.file))
				require.NoError(t, err)
				require.Regexp(t, tt.has, string(text))
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
