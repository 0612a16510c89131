package spoke_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
)

// confined is a mesh with a spoke whose agents are isolated as on any host.
func confined(t *testing.T, more string) *meshtest.Mesh {
	t.Helper()
	return meshtest.Plan{Policy: policy.Presets["open"] + more, Passable: true}.Start(t, "attic")
}

// levels are one that this host holds, and the strongest; root's agents have users, others' rules.
func levels() (one, strongest string) {
	if os.Geteuid() != 0 {
		return commands.IsolationLandlock, commands.IsolationLandlock
	}
	return commands.IsolationUser, commands.IsolationUserLandlock
}

func shell(script string) commands.Spawn {
	return commands.Spawn{Runtime: commands.RuntimeExec, Argv: []string{"sh", "-c", script}}
}

// What an agent is confined by is in its receipts, and so it is.
func TestAnAgentIsConfined(t *testing.T) {
	t.Parallel()
	m := confined(t, "")
	s := m.Spokes["attic"]
	other := m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: shell(`echo mine >"$HOME/mine"; id -u`)})
	require.Equal(t, commands.Completed, m.Wait(t, other).State)

	task := m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: shell(`id -u; ls ` + s.Dir + `; cat ` + policy.File(s.Dir) + `; ls ` + filepath.Join(s.Dir, "agents", other, "1", "home") +
		`; echo x >"$HOME/file" && echo x >"$TMPDIR/file" && echo x >file && echo own; git --version >/dev/null && python3 -c 'print("python")'`)})
	v := m.Wait(t, task)

	require.Equal(t, commands.Completed, v.State)
	_, strongest := levels()
	require.Equal(t, strongest, v.Isolation)
	lines := strings.Split(m.Stdout(t, task, true), "\n")
	require.Equal(t, []string{"own", "python", ""}, lines[1:])
	if os.Geteuid() == 0 {
		require.NotEqual(t, lines[0], strings.TrimSpace(m.Stdout(t, other, true)), "each has a user of its own")
	}
	require.NotEqual(t, "0", lines[0])
	m.Check(t)
}

// An order can demand a level, and a spoke that does not have it refuses.
func TestALevelThatIsDemanded(t *testing.T) {
	t.Parallel()
	one, _ := levels()
	m := confined(t, "isolation: "+one+"\n")
	order := hub.SpawnRequest{Spoke: "attic", Spawn: shell("true")}
	order.Spawn.Capabilities = commands.IsolationCapabilities(one)
	v := m.Wait(t, m.Order(t, order))
	require.Equal(t, commands.Completed, v.State)
	require.Equal(t, one, v.Isolation)

	order.Spawn.Capabilities = commands.IsolationCapabilities(commands.IsolationUserLandlock)
	v = m.Wait(t, m.Order(t, order))

	require.Equal(t, commands.CapabilityMissing, v.Reason)
}

// A bubble is for those that ask for one.
func TestABubbleOnDemand(t *testing.T) {
	t.Parallel()
	m := confined(t, "connect_ports: []\n")
	order := hub.SpawnRequest{Spoke: "attic", Spawn: shell(`set -- /proc/[0-9]*; [ $# -lt 8 ] && ls -A /tmp && echo x >"$TMPDIR/x" && cat /tmp/x && echo x >"$HOME/x" && ls ` + m.Spokes["attic"].Dir + `/agents/*/*; exit 3`)}
	order.Spawn.Capabilities = commands.IsolationCapabilities(commands.IsolationBubble)

	task := m.Order(t, order)
	v := m.Wait(t, task)

	if _, err := exec.LookPath("bwrap"); err != nil {
		require.Equal(t, commands.CapabilityMissing, v.Reason, "the package bubblewrap is not here")
		return
	}
	require.Equal(t, commands.Failed, v.State)
	require.Equal(t, 3, *v.ExitCode, "%s", m.Stdout(t, task, true))
	require.Equal(t, "x\nhome\ntmp\nwork\n", m.Stdout(t, task, true))
	require.Contains(t, v.Isolation, commands.IsolationBubble)
	order.Spawn.Capabilities = nil
	v = m.Wait(t, m.Order(t, order))
	require.NotContains(t, v.Isolation, commands.IsolationBubble)
}

// Where it has the user of its spoke an agent could connect to the control socket.
func TestAnAgentDoesNotControlItsSpoke(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	s := m.Spokes["attic"]
	ask := `import http.client, socket, sys
c = http.client.HTTPConnection("x"); c.sock = socket.socket(socket.AF_UNIX); c.sock.connect(sys.argv[1])
c.request("GET", "/v1/instance"); r = c.getresponse(); print(r.status, r.read().decode())`

	task := m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeExec, Argv: []string{"python3", "-c", ask, filepath.Join(s.Dir, "control.sock")}}})

	require.Equal(t, commands.Completed, m.Wait(t, task).State)
	require.Regexp(t, `^403 .*FORBIDDEN.*agents may not control`, m.Stdout(t, task, true))
}

// A spoke that comes back finds the user of its agents, and takes it back at their end.
func TestAUserIsFoundAgain(t *testing.T) {
	t.Parallel()
	m := confined(t, "")
	s := m.Spokes["attic"]
	task := m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: shell(`id -u; (setsid env -i sleep 600 >/dev/null 2>&1 &); sleep 600`)})
	m.Await(t, task, commands.Running)
	m.Stop(t, "attic")
	m.Start(t, "attic")
	m.AwaitLink(t, "attic")
	m.Hub.Do(t, "POST", "/v1/agents/"+task+"/kill", map[string]any{"reason": "test", "grace_ms": 0}, nil)

	v := m.Wait(t, task)

	require.Equal(t, commands.Cancelled, v.State)
	_, strongest := levels()
	require.Equal(t, strongest, v.Isolation)
	meshtest.Await(t, "that its directories are the spoke's", func() bool {
		info, err := os.Stat(filepath.Join(s.Dir, "agents", task, "1", "home"))
		require.NoError(t, err)
		return info.Sys().(*syscall.Stat_t).Uid == uint32(os.Geteuid())
	})
}

// What a hub demands of all holds for an order that demands nothing.
func TestALevelThatTheHubDemands(t *testing.T) {
	t.Parallel()
	m := meshtest.Plan{Demands: commands.IsolationUser}.Start(t, "attic")

	v := m.Wait(t, m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: shell("true")}))

	require.Equal(t, commands.CapabilityMissing, v.Reason)
	require.Contains(t, string(v.Refusal), "does not confine agents by user")
	require.Equal(t, commands.Completed, m.Wait(t, m.Noop(t, "attic")).State, "nothing is started, so nothing is confined")
}

// A spoke may end before it takes the user of an ended agent back. The next one does.
func TestAUserThatWasNotTakenBackIs(t *testing.T) {
	t.Parallel()
	m := confined(t, "")
	s := m.Spokes["attic"]
	task := m.Spawn(t, "attic", "true")
	m.Wait(t, task)
	m.Stop(t, "attic")
	if os.Geteuid() != 0 {
		require.NoFileExists(t, filepath.Join(s.Dir, "agent-users"), "only root gives users")
		return
	}
	raw, err := os.ReadFile(filepath.Join(s.Dir, "agent-users"))
	require.NoError(t, err)
	first, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	require.NoError(t, err)
	home := filepath.Join(s.Dir, "agents", task, "1", "home")
	owner := func() uint32 {
		info, err := os.Stat(home)
		require.NoError(t, err)
		return info.Sys().(*syscall.Stat_t).Uid
	}
	require.Zero(t, owner(), "a stop takes it back")
	require.NoError(t, os.Lchown(home, first+7, first+7))

	m.Start(t, "attic")

	meshtest.Await(t, "that it is taken back", func() bool { return owner() == 0 })
}
