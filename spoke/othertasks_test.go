package spoke_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
)

// looksAround prints all that its user reads of every process of this host, and of their sockets.
const looksAround = `import glob, os
seen = []
for d in glob.glob("/proc/[0-9]*"):
    if d == "/proc/%d" % os.getpid(): continue
    for f in ["cmdline", "environ", "comm", "cgroup", "status", "mountinfo"]:
        try: seen.append(open(d + "/" + f, "rb").read().decode(errors="replace"))
        except OSError: pass
    for l in [d + "/cwd", d + "/root", d + "/exe"] + glob.glob(d + "/fd/*"):
        try: seen.append(os.readlink(l))
        except OSError: pass
seen.append(open("/proc/net/unix").read())
print("\n".join(seen).replace("\0", " "))`

// What an agent reads of other processes, of their command lines above all, tells it no task of another one, nor where that has its files.
func TestAnAgentFindsNoOtherTask(t *testing.T) {
	t.Parallel()
	one, strongest := levels()
	for _, level := range []string{one, strongest} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			m := confined(t, "isolation: "+level+"\n")
			other := m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: shell("sleep 600")})
			m.Await(t, other, commands.Running)

			task := m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeExec, Argv: []string{"python3", "-c", looksAround}}})

			v := m.Wait(t, task)
			require.Equal(t, commands.Completed, v.State)
			require.Equal(t, level, v.Isolation)
			seen := m.Stdout(t, task, true)
			require.Contains(t, seen, " _shim . ", "it sees the shim of the other")
			require.Contains(t, seen, "sleep 600")
			for line := range strings.Lines(seen) {
				require.NotContains(t, line, other)
			}
		})
	}
}
