package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/fleet"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
)

// What goes wrong with instances, and what each says about it.
func TestInstancesByHand(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	for _, test := range []struct {
		name string
		run  func(*testing.T, *fleet.Mesh, hand, hand) // with the hands of hub and spoke
	}{
		{"a directory has one instance", oneInstance},
		{"a spoke that has not joined", notJoined},
		{"no instance at all", noInstance},
		{"what only the other role does", otherRole},
		{"no Postgres on the host", noPostgres},
		{"a link's address", linkAddress},
		{"a policy that others can write", loosePolicy},
		{"a policy is reloaded", policyReloaded},
		{"doctor", doctorByHand},
		{"a hub signs with other keys", keysByHand},
		{"its Postgres is killed", postgresKilled},
		{"a hub that restarts while somebody waits", hubRestarts},
		{"a key that others can read", looseKey},
		{"all keys are gone", goneKeys},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.run(t, m, hand{t: t, dir: m.Hub.Dir}, hand{t: t, dir: m.Spokes["attic"].Dir})
		})
	}
}

// fresh is the hand of somebody with an empty directory.
func fresh(t *testing.T) hand {
	t.Helper()
	dir, err := os.MkdirTemp("", "spawnmesh-hand-")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o711))
	return hand{t: t, dir: dir}
}

func oneInstance(t *testing.T, _ *fleet.Mesh, h, s hand) {
	h.refused(exitConflict, "in use by another running instance (pid ", "hub", "run", "--link", "127.0.0.1:0")
	link, err := os.ReadFile(filepath.Join(h.dir, "ready"))
	require.NoError(t, err)
	h.refused(exitConflict, "in use by another running instance (pid ", "hub", "run", "--link", strings.TrimSpace(string(link)))
	s.refused(exitConflict, "in use by another running instance (pid ", "spoke", "run")
	s.refused(exitConflict, "stop that one", "hub", "run", "--link", "127.0.0.1:0")
}

func notJoined(t *testing.T, _ *fleet.Mesh, _, _ hand) {
	fresh(t).refused(exitConflict, "has not joined a hub\n           join one with the token that its operator made: spawnmesh --data-dir ", "spoke", "run")
}

func noInstance(t *testing.T, _ *fleet.Mesh, _, _ hand) {
	none := fresh(t)
	for _, line := range []string{"agents", "status ffffffff", "logs ffffffff", "logs -f ffffffff", "why ffffffff", "kill ffffffff --reason x", "spawn --wait -- true",
		"connections list", "connections show x", "invite --name x"} {
		none.refused(exitUnreachable, "no instance runs in "+none.dir, strings.Fields(line)...)
	}
	got := none.run("", "-o", "json", "agents")
	requireErrorJSON(t, got.err, commands.Unreachable, "no instance runs in "+none.dir,
		"there is none yet: name another --data-dir, or begin with: spawnmesh --data-dir "+none.dir+" hub run")
}

func otherRole(t *testing.T, _ *fleet.Mesh, _, s hand) {
	s.refused(exitMisuse, "this instance is a spoke; this is asked of its hub", "spawn", "--spoke", "x", "--", "true")
	s.refused(exitMisuse, "ask that instance itself: on its host, or at its own address", "invite", "--name", "x")
}

func noPostgres(t *testing.T, _ *fleet.Mesh, _, _ hand) {
	none := fresh(t)
	none.env = []string{"SPAWNMESH_PG_BIN=" + none.dir, "PATH=/nowhere"}
	none.refused(exitUnreachable, none.dir+"/postgres", "hub", "run", "--link", "127.0.0.1:0")
	got := none.run("", "doctor")
	require.Equal(t, exitUnexpected, got.code)
	require.Regexp(t, `(?m)^postgres programs +WRONG: `, got.out)
}

func linkAddress(t *testing.T, m *fleet.Mesh, _, _ hand) {
	link, err := os.ReadFile(filepath.Join(m.Hub.Dir, "ready"))
	require.NoError(t, err)
	taken, none := strings.TrimSpace(string(link)), fresh(t)
	none.refused(exitConflict, "something listens on "+taken, "hub", "run", "--link", taken)
	none.refused(exitMisuse, "is not of the form host:port", "hub", "run", "--link", "127.0.0.1")
	none.refused(exitMisuse, "--link 192.0.2.1:0", "hub", "run", "--link", "192.0.2.1:0")
	require.NoDirExists(t, filepath.Join(none.dir, "pg"), "no database for nothing")
}

func loosePolicy(t *testing.T, _ *fleet.Mesh, _, _ hand) {
	loose := fresh(t)
	path := strings.TrimSpace(loose.do("spoke", "policy", "init", "--preset", "open"))
	require.NoError(t, os.Chmod(path, 0o666))
	for _, args := range [][]string{{"spoke", "run"}, {"spoke", "policy", "show"}, {"spoke", "policy", "test", "--", "true"}} {
		loose.refused(exitMisuse, "can be written by others; run: chmod go-w "+path, args...)
	}
	require.Regexp(t, `(?m)^policy +WRONG: .*chmod go-w `+path, loose.run("", "doctor").out)
}

// What a running spoke obeys changes when it is told to read its policy again, by
// command or by signal, and not otherwise.
func policyReloaded(t *testing.T, m *fleet.Mesh, h, s hand) {
	path := filepath.Join(s.dir, "policy.yaml")
	write := func(text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o644)) }
	allowed := func(program string) bool {
		return h.run("", "spawn", "--spoke", "attic", "--wait", "--", program).code == 0
	}
	defer func() { // what follows uses the same spoke
		write(loose)
		s.do("spoke", "policy", "reload")
	}()
	require.True(t, allowed("true"))

	write("version: 1\nruntimes: [exec]\ncommands: [uptime]\n")
	require.True(t, allowed("true"), "nothing changes by itself")
	change := s.do("spoke", "policy", "reload")

	require.Regexp(t, `^policy [0-9a-f]{12} is in force, was [0-9a-f]{12}; agents are confined by [a-z+]+\n$`, change)
	version := strings.Fields(change)[1]
	require.False(t, allowed("true"))
	id := h.spawn("--spoke", "attic", "--", "uptime")
	h.ends(id)
	require.Regexp(t, `(?m)^policy +`+version+`$`, h.do("status", id))
	require.Contains(t, s.do("spoke", "policy", "reload"), "policy "+version+" stays in force: no rule has changed")

	write("version: 1\nruntimes: [exec]\ncommands: ['*']\nnonsense: 1\n")
	s.refused(exitMisuse, path+": [4:1]", "spoke", "policy", "reload")
	require.False(t, allowed("true"), "a bad file changes nothing")
	require.True(t, allowed("uptime"))

	write("version: 1\nruntimes: [exec]\ncommands: ['true']\n")
	require.NoError(t, m.Spokes["attic"].Cmd.Process.Signal(syscall.SIGHUP))
	require.NoError(t, fleet.Poll(t.Context(), 30*time.Second, "waiting for the policy", func() (bool, error) { return allowed("true"), nil }))
	require.False(t, allowed("uptime"))
	fresh(t).refused(exitUnreachable, "no instance", "spoke", "policy", "reload")
}

func doctorByHand(t *testing.T, _ *fleet.Mesh, h, s hand) {
	require.Regexp(t, `(?m)^instance +hub, pid \d+$`, h.do("doctor"))
	require.Regexp(t, `(?m)^instance +spoke, pid \d+$`, s.do("doctor"))
	require.Regexp(t, `(?m)^link to lab +ok$`, s.do("doctor"))
	require.Regexp(t, `(?m)^policy +any command may run here$`, s.do("doctor"))
	require.Contains(t, fresh(t).do("doctor"), "not running")
	var checks []struct {
		Name string `json:"name"`
		OK   bool   `json:"ok"`
	}
	h.read(&checks, 0, "doctor")
	require.Greater(t, len(checks), 6)
	for _, c := range checks {
		require.True(t, c.OK, c.Name)
	}
	require.NotRegexp(t, `[ \t]\n`, h.do("doctor"))
	of := func(doctor string) int {
		return strings.Count(doctor, "\nkill level ") + strings.Count(doctor, "\nlimits held ")
	}
	require.Zero(t, of(h.do("doctor")), "a hub alone has no agents to end")
	require.Equal(t, 2, of(s.do("doctor")))
	require.Equal(t, 2, of(fresh(t).do("doctor")), "it may become a spoke")
	stopped := fresh(t)
	require.NoError(t, os.Mkdir(filepath.Join(stopped.dir, "nats"), 0o700))
	require.Zero(t, of(stopped.run("", "doctor").out), "a hub that does not run")
	require.NoError(t, os.WriteFile(filepath.Join(stopped.dir, "policy.yaml"), []byte(policy.Presets["deny"]), 0o600))
	require.Equal(t, 2, of(stopped.run("", "doctor").out), "and is the spoke of another one")
	require.LessOrEqual(t, strings.Count(s.do("doctor"), "mkdir "), 1, "a reason is said once")
}

func postgresKilled(t *testing.T, _ *fleet.Mesh, h, s hand) {
	killPostgres(t, h.dir)
	require.Equal(t, "hi\n", resultOf(h.ends(h.spawn("--spoke", "attic", "--", "echo", "hi"))).Stdout.Tail)
	killPostgres(t, s.dir)
	got := h.run("", "spawn", "--spoke", "attic", "--wait", "--", "echo", "hi")
	require.Equal(t, 0, got.code, "%s%s", got.out, got.err)
}

func hubRestarts(t *testing.T, m *fleet.Mesh, h, _ hand) {
	g := newGate(t)
	job := h.begin("spawn", "--spoke", "attic", "--follow", "--", "sh", "-c", "echo one; "+g.wait()+"; echo two")
	job.reads("one\n")
	require.NoError(t, m.Hub.Stop(t.Context()))
	g.open(t)
	require.NoError(t, m.Hub.Start(t.Context()))
	got := job.end()
	require.Equal(t, 0, got.code, "%s", got.err)
	require.Equal(t, "two\n", got.out)
	require.Contains(t, got.err, "the hub does not answer")
}

func looseKey(t *testing.T, m *fleet.Mesh, h, _ hand) {
	require.NoError(t, m.Hub.Stop(t.Context()))
	path := filepath.Join(h.dir, "keys", "identity")
	require.NoError(t, os.Chmod(path, 0o644))
	h.refused(exitMisuse, "key file "+path+" has mode 0644: others can use it; run: chmod 600 "+path, "hub", "run", "--link", "127.0.0.1:0")
	require.Regexp(t, `(?m)^keys +WRONG: .*chmod 600 `+path, h.run("", "doctor").out)
	got := h.run("", "-o", "json", "hub", "run", "--link", "127.0.0.1:0")
	require.Contains(t, got.err, `"code":"KEY_FILE"`)
	out, err := exec.Command("chmod", "600", path).CombinedOutput()
	require.NoError(t, err, "what was said helps: %s", out)
	require.NoError(t, m.Hub.Start(t.Context()))
}

// Whoever loses all keys must not find new ones in their place.
func goneKeys(t *testing.T, m *fleet.Mesh, h, s hand) {
	for who, i := range map[*hand]*fleet.Process{&h: m.Hub, &s: m.Spokes["attic"]} {
		keys, away := filepath.Join(who.dir, "keys"), filepath.Join(t.TempDir(), "keys")
		require.NoError(t, i.Stop(t.Context()))
		require.NoError(t, os.Rename(keys, away))
		for _, args := range [][]string{{"hub", "run", "--link", "127.0.0.1:0"}, {"spoke", "run"}, {"agents"}, {"backlog", "create", "--title", "x"}, {"backlog", "list"}} {
			who.refused(exitMisuse, "key file "+keys+" is missing, though an instance has been here: there is ", args...)
			who.refused(exitMisuse, "nothing was changed; put the whole directory keys back from a backup", args...)
		}
		require.NoDirExists(t, keys)
		require.Regexp(t, `(?m)^keys +WRONG: key file `+keys+` is missing`, who.run("", "doctor").out)
		require.NoError(t, os.Rename(away, keys))
		require.NoError(t, i.Start(t.Context()), "as the message says")
	}
}
