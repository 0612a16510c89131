package spoke_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/spoke"
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
	require.Equal(t, "x\ndoor\nhome\ntmp\nwork\n", m.Stdout(t, task, true))
	require.Contains(t, v.Isolation, commands.IsolationBubble)
	order.Spawn.Capabilities = nil
	v = m.Wait(t, m.Order(t, order))
	require.NotContains(t, v.Isolation, commands.IsolationBubble)
}

// Where agents are not confined one may read the key of the control socket.
func TestAnAgentDoesNotControlItsSpoke(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	s := m.Spokes["attic"]
	ask := `import http.client, socket, sys
c = http.client.HTTPConnection("x"); c.sock = socket.socket(socket.AF_UNIX); c.sock.connect(sys.argv[1])
c.request("GET", "/api/v1/instance", headers=dict([open(sys.argv[2]).read().strip().split(": ")])); r = c.getresponse(); print(r.status, r.read().decode())`

	task := m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeExec, Argv: []string{"python3", "-c", ask, filepath.Join(s.Dir, "control.sock"), filepath.Join(s.Dir, "control.key")}}})

	require.Equal(t, commands.Completed, m.Wait(t, task).State)
	require.Regexp(t, `^403 .*FORBIDDEN.*agents may not control`, m.Stdout(t, task, true))
}

// A child of an agent that has ended its shim is below none, and has the user of its spoke. The key it may not read at landlock
// (the attack read-control-key); here it does not, and gets nothing.
func TestAnAgentWithoutItsShimDoesNotControlItsSpoke(t *testing.T) {
	t.Parallel()
	m := meshtest.Plan{Policy: meshtest.Loose(policy.Presets["open"])}.Start(t, "attic")
	s := m.Spokes["attic"]
	ask := `import fcntl, http.client, os, signal, socket, sys
shim, said = os.getppid(), open("said", "a")
fcntl.flock(said, fcntl.LOCK_EX)
def ask():
    c = http.client.HTTPConnection("x"); c.sock = socket.socket(socket.AF_UNIX); c.sock.connect(sys.argv[1])
    c.request("POST", "/api/v1/policy/reload"); said.write("%d\n" % c.getresponse().status); said.flush()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for group in "/sys/fs/cgroup", "/sys/fs/cgroup/unified":
            try: open(group + "/cgroup.procs", "w").write(str(os.getpid()))
            except OSError: pass
        while os.getppid() == shim: ask()
        for _ in range(20): ask()
    os._exit(0)
os.wait()
while not os.path.getsize("said"): pass
os.kill(shim, signal.SIGKILL)`

	task := m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeExec, Argv: []string{"env", "-i", "python3", "-c", ask, filepath.Join(s.Dir, "control.sock")}}})

	require.NotEqual(t, commands.Completed, m.Wait(t, task).State)
	name := filepath.Join(s.Dir, "agents", task, "1", "work", "said")
	meshtest.Await(t, "the end of all that ask", func() bool {
		f, err := os.Open(name)
		require.NoError(t, err)
		defer f.Close()
		return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
	})
	said, err := os.ReadFile(name)
	require.NoError(t, err)
	require.Contains(t, string(said), "403")
	require.NotContains(t, string(said), "200", "it was served when nothing was above it that told whose it is")
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
	m.Hub.Do(t, "POST", "/api/v1/tasks/"+task+"/kill", map[string]any{"reason": "test", "grace_ms": 0}, nil)

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

// A spoke may end before it takes the user of an ended agent back. The next one does, also where that
// is one of a range that it had long ago, or on another host, and while the output is unsent.
func TestAUserThatWasNotTakenBackIs(t *testing.T) {
	t.Parallel()
	m := confined(t, "")
	s := m.Spokes["attic"]
	task, old := m.Spawn(t, "attic", "true"), m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: shell(`until [ -e go ]; do sleep 0.05; done; echo hi`)})
	m.Wait(t, task)
	m.Await(t, old, commands.Running)
	s.Proxy.Cut()
	require.NoError(t, os.WriteFile(filepath.Join(s.Dir, "agents", old, "1", "work", "go"), nil, 0o644))
	meshtest.Await(t, "the end of the agent", func() bool { return s.Count(t, `SELECT count(*) FROM leases`) == 0 })
	m.Stop(t, "attic")
	if os.Geteuid() != 0 {
		require.NoFileExists(t, filepath.Join(s.Dir, "agent-users"), "only root gives users")
		return
	}
	raw, err := os.ReadFile(filepath.Join(s.Dir, "agent-users"))
	require.NoError(t, err)
	first, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	require.NoError(t, err)
	home := func(task string) string { return filepath.Join(s.Dir, "agents", task, "1", "home") }
	owner := func(task string) uint32 {
		info, err := os.Stat(home(task))
		require.NoError(t, err)
		return info.Sys().(*syscall.Stat_t).Uid
	}
	require.Zero(t, owner(task), "a stop takes it back")
	require.NoError(t, os.Lchown(home(task), first+7, first+7))
	require.NoError(t, os.Lchown(home(old), 2_000_000_007, 2_000_000_007))
	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM outputs WHERE task = $1`, old), "its output is unsent")

	m.Start(t, "attic")

	meshtest.Await(t, "that both are taken back", func() bool { return owner(task) == 0 && owner(old) == 0 })
	s.Proxy.Heal()
	require.Equal(t, "hi\n", m.Stdout(t, old, true))
}

// After a change of the range what a dead shim left runs as a user that is none of an agent's now. While it lives
// its attempt is not over, and the directory of one that is on no record stays. It is not ended: its user may be another's.
func TestWhatRunsAsAFormerUserKeepsItsAttempt(t *testing.T) {
	t.Parallel()
	m := confined(t, "")
	s := m.Spokes["attic"]
	task := m.Spawn(t, "attic", "sleep", "600")
	m.Await(t, task, commands.Running)
	shim := s.Count(t, `SELECT shim_pid FROM sessions WHERE task = $1`, task)
	m.Stop(t, "attic")
	require.NoError(t, syscall.Kill(shim, syscall.SIGKILL))
	if os.Geteuid() != 0 {
		return // only root gives users
	}
	const former = 2_100_000_007
	at := func(task, name string) string { return filepath.Join(s.Dir, "agents", task, "1", name) }
	home := func(task string) string { return at(task, "home") }
	unrecorded := storetest.NewID()
	require.NoError(t, errors.Join(os.MkdirAll(home(unrecorded), 0o711), os.Mkdir(at(unrecorded, "control"), 0o700)))
	spec, err := os.ReadFile(at(task, "control/spec.json"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(at(unrecorded, "control/spec.json"), spec, 0o600))
	long := time.Now().Add(-30 * 24 * time.Hour)
	require.NoError(t, os.Chtimes(at(unrecorded, "control"), long, long))
	for _, id := range []string{task, unrecorded} {
		require.NoError(t, os.Lchown(home(id), former, former))
	}
	left := exec.Command("/bin/sleep", "600")
	left.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: former, Gid: former}}
	require.NoError(t, left.Start())
	t.Cleanup(func() { _ = left.Process.Kill(); _ = left.Wait() })

	m.Start(t, "attic")

	meshtest.Await(t, "that both are not over", func() bool {
		said := s.Log.String()
		return strings.Contains(said, "taking over an attempt; it will be tried again") && strings.Contains(said, "an old attempt cannot be removed") && strings.Contains(said, unrecorded)
	})
	require.Equal(t, commands.Running, m.Agent(t, task).State)
	require.DirExists(t, home(unrecorded))
	require.NoError(t, left.Process.Signal(syscall.Signal(0)))
	require.NoError(t, left.Process.Kill())
	_ = left.Wait() // it says that it was killed
	require.Equal(t, commands.ExecutorDied, m.Wait(t, task).Reason)
}

// A policy that demands what this host does not hold is a bad one: the one before stays.
func TestAReloadThatThisHostCannotHoldIsRefused(t *testing.T) {
	t.Parallel()
	one, strongest := levels()
	not := map[string]string{commands.IsolationUser: commands.IsolationLandlock, commands.IsolationLandlock: commands.IsolationUser}[one]
	m := confined(t, "")
	s := m.Spokes["attic"]
	before, end := running(t, s), s.AuditEnd(t)
	reload := func(more string) (change policy.Change, err error) {
		require.NoError(t, os.WriteFile(policy.File(s.Dir), []byte(policy.Presets["open"]+more), 0o600))
		err = s.Ask(t, "POST", "/api/v1/policy/reload", nil, &change)
		return change, err
	}

	_, err := reload("isolation: " + not + "\n")

	require.Equal(t, commands.Validation, commands.CodeOf(err))
	require.ErrorContains(t, err, policy.File(s.Dir)+": isolation "+not+" does not hold on this host: ")
	require.Equal(t, before, running(t, s))
	require.Contains(t, s.Log.String(), "the policy cannot be used; the one before stays in force")
	require.Equal(t, "policy.kept", s.Audit(t, end)[0].Action)
	require.Equal(t, strongest, m.Wait(t, m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: shell("true")})).Isolation)
	var v spoke.Description
	s.Do(t, "GET", "/api/v1/instance", nil, &v)
	require.Error(t, v.Held.Fault(not))
	require.NoError(t, v.Held.Fault(strongest))
	require.Equal(t, os.Geteuid() == 0, v.Held.Root())

	const unconfined = "agents are not kept from this host"
	require.NotContains(t, s.Log.String(), unconfined)
	change, err := reload("isolation: none\nallow_root_agents: true\n")

	require.NoError(t, err)
	require.Equal(t, commands.IsolationNone, change.Level)
	require.Contains(t, s.Log.String(), unconfined)
}

// A hub is told the level of those agents that demand none, and that no program is started.
func TestAHubIsToldTheLevel(t *testing.T) {
	t.Parallel()
	one, _ := levels()
	not := map[string]string{commands.IsolationUser: commands.IsolationLandlock, commands.IsolationLandlock: commands.IsolationUser}[one]
	m := confined(t, "isolation: "+not+"\n")
	meshtest.Await(t, "what it says", func() bool { return m.View(t, "attic").Isolation != "" })
	require.Equal(t, commands.IsolationUnmet, m.View(t, "attic").Isolation)

	s := m.Spokes["attic"]
	require.NoError(t, os.WriteFile(policy.File(s.Dir), []byte(policy.Presets["open"]+"isolation: "+one+"\n"), 0o600))
	s.Do(t, "POST", "/api/v1/policy/reload", nil, nil)

	meshtest.Await(t, "that it says the level", func() bool { return m.View(t, "attic").Isolation == one })
}

// A spoke that was restored to before an order does not know its agent until its hub says so again. Its user and its
// secrets stay its own all the while.
func TestARestoreTakesNoUserFromAnAgent(t *testing.T) {
	t.Parallel()
	m := confined(t, "")
	s := m.Spokes["attic"]
	m.Stop(t, "attic")
	backup := s.Backup(t)
	m.Start(t, "attic")
	m.AwaitLink(t, "attic")
	task := m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: shell(`echo kept >"$HOME/.secret"; until [ -e go ]; do sleep 0.05; done; cat "$HOME/.secret"`)})
	m.Await(t, task, commands.Running)
	dir := filepath.Join(s.Dir, "agents", task, "1")
	owner := func() uint32 {
		info, err := os.Stat(filepath.Join(dir, "home"))
		require.NoError(t, err)
		return info.Sys().(*syscall.Stat_t).Uid
	}
	agents := owner()
	m.Stop(t, "attic")
	s.Restore(t, backup)

	m.Start(t, "attic")
	meshtest.Await(t, "that it is adopted", func() bool { return strings.Contains(s.Log.String(), "agent goes on") })
	m.Stop(t, "attic") // which takes back what is to be taken back
	require.Equal(t, agents, owner())
	m.Start(t, "attic")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "work", "go"), nil, 0o644))

	v := m.Wait(t, task)
	require.Equal(t, commands.Completed, v.State, "%+v", v)
	require.Equal(t, "kept\n", m.Stdout(t, task, true))
}

// An attempt whose shim was killed, and which nobody adopts after a restore, gives its user and its secrets back when
// nothing of it is left. What is left is not ended, and keeps them.
func TestAnAttemptThatNobodyAdoptsGivesBackWhatItHad(t *testing.T) {
	t.Parallel()
	m := confined(t, "")
	s := m.Spokes["attic"]
	decoy := m.Spawn(t, "attic", "true") // a sweep looks at it just before
	m.Wait(t, decoy)
	m.Stop(t, "attic")
	backup := s.Backup(t)
	m.Start(t, "attic")
	m.AwaitLink(t, "attic")
	task := m.Order(t, secretly("plain", "s3cret", "in a file", "sh", "-c", `setsid sh -c 'echo $$ >pid; until [ -e end ]; do sleep 0.05; done' & exec sleep 600`))
	m.Await(t, task, commands.Running)
	work, home, secrets := filepath.Join(s.Dir, "agents", task, "1", "work"), homeOf(s, task, "1"), filepath.Join(homeOf(s, decoy, "1"), ".secrets")
	owner := func() uint32 {
		info, err := os.Stat(home)
		require.NoError(t, err)
		return info.Sys().(*syscall.Stat_t).Uid
	}
	agents, shim := owner(), s.Count(t, `SELECT shim_pid FROM sessions WHERE task = $1`, task)
	var child string
	meshtest.Await(t, "its child", func() bool {
		raw, _ := os.ReadFile(filepath.Join(work, "pid"))
		child = filepath.Join("/proc", strings.TrimSpace(string(raw)))
		return strings.HasSuffix(string(raw), "\n")
	})
	m.Stop(t, "attic")
	require.NoError(t, syscall.Kill(shim, syscall.SIGKILL))
	requireShimGone(t, filepath.Join(work, "..", "control"))
	endLeft := func() { require.NoError(t, os.WriteFile(filepath.Join(work, "end"), nil, 0o644)) }
	gone := func() bool { _, err := os.Stat(child); return os.IsNotExist(err) }
	if agents != 0 && os.Geteuid() == 0 { // one that only its user tells
		endLeft()
		meshtest.Await(t, "the end of its child", gone)
		stray := exec.Command("/bin/sleep", "600")
		stray.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: agents, Gid: agents}}
		require.NoError(t, stray.Start())
		endLeft = func() { _ = stray.Process.Kill(); _ = stray.Wait() }
		t.Cleanup(endLeft)
		child = filepath.Join("/proc", strconv.Itoa(stray.Process.Pid))
	}
	s.Restore(t, backup)
	s.Proxy.Cut() // its hub does not say it again
	require.NoError(t, os.Mkdir(secrets, 0o700))

	m.Start(t, "attic")
	meshtest.Await(t, "a sweep", func() bool { _, err := os.Stat(secrets); return os.IsNotExist(err) })
	m.Stop(t, "attic")

	require.Equal(t, agents, owner())
	require.FileExists(t, filepath.Join(home, ".secrets", "KEY"))
	require.DirExists(t, child)
	endLeft()
	meshtest.Await(t, "the end of what was left", gone)

	m.Start(t, "attic")
	meshtest.Await(t, "that its user is taken back", func() bool { return owner() == uint32(os.Geteuid()) })
	meshtest.Await(t, "the end of its secrets", func() bool { _, err := os.Stat(filepath.Join(home, ".secrets")); return os.IsNotExist(err) })

	s.Proxy.Heal()
	v := m.Wait(t, task)
	require.Equal(t, commands.Failed, v.State)
	require.Contains(t, string(v.Result), "the shim ended without a record", "it runs once")
	m.Check(t)
}

// The host is told what its kernel holds, and whether there is a bubble, by the spoke itself: who
// asks may be in another cgroup.
func TestDoctorSaysWhatTheHostHolds(t *testing.T) {
	t.Parallel()
	m := confined(t, "")
	for check, says := range map[string]string{"kill level": `^(cgroup|tree): the `, "limits held": `held by the kernel$|^(measured|not held) `, "bubble": `bubble, for the orders that ask for it$|^none: `} {
		require.Regexp(t, says, m.Spokes["attic"].Health(t, check).Note)
	}
}
