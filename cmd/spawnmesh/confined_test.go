package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
	"github.com/spawnmesh/spawnmesh/store"
)

// A spoke isolates its agents without being told, and says so wherever it is shown.
func TestASpokeIsolatesItsAgents(t *testing.T) {
	t.Parallel()
	m := startHub(t)
	withCluster(t, filepath.Join(m.Dir, "attic"))
	require.NoError(t, m.AddSpoke(t.Context(), "attic", policy.Presets["open"], "--heartbeat", "1s"))
	h, s := hand{t: t, dir: m.Hub.Dir}, hand{t: t, dir: m.Spokes["attic"].Dir}
	level := commands.IsolationUserLandlock
	if os.Geteuid() != 0 {
		level = commands.IsolationLandlock
	}

	id := h.spawn("--spoke", "attic", "--isolation", "landlock", "--", "sh", "-c", "exec 2>/dev/null; cat "+filepath.Join(s.dir, "keys")+"/* "+policy.File(s.dir)+"; "+
		"ls "+s.dir+" "+filepath.Join(s.dir, "run")+"; echo own >file; cat file")
	h.ends(id)

	require.Equal(t, "own\n", h.do("logs", "-f", id))
	require.Regexp(t, `(?m)^isolation +`+regexp.QuoteMeta(level)+`$`, h.do("status", id))
	require.Regexp(t, `(?m)^isolation +`+regexp.QuoteMeta(level)+`$`, s.do("status", id))
	require.Regexp(t, `(?m)^isolation +`+regexp.QuoteMeta(level)+`$`, h.do("connections", "show", "attic"))
	require.Contains(t, h.do("connections", "list", "-o", "wide"), level)
	require.Regexp(t, `(?m)^isolation +`+regexp.QuoteMeta(level), s.do("doctor"))
	var v struct{ Isolation string }
	require.NoError(t, json.Unmarshal([]byte(h.do("-o", "json", "status", id)), &v))
	require.Equal(t, level, v.Isolation)
	h.refused(exitMisuse, "--isolation gaol is not a level", "spawn", "--spoke", "attic", "--isolation", "gaol", "--", "true")
	requirePrivate(t, m.Hub.Cmd.Process.Pid)
	requirePrivate(t, m.Spokes["attic"].Cmd.Process.Pid)
}

// What the policy is asked about it is asked as the spoke that runs has found the host to be.
func TestThePolicyIsAskedOfTheHostThatRuns(t *testing.T) {
	t.Parallel()
	m := startHub(t)
	withCluster(t, filepath.Join(m.Dir, "attic"))
	require.NoError(t, m.AddSpoke(t.Context(), "attic", policy.Presets["open"], "--heartbeat", "1s"))
	dir := m.Spokes["attic"].Dir
	ask := func(words ...string) said {
		return typed(t, append([]string{"--data-dir", dir, "spoke", "policy"}, words...)...)
	}
	level, not := commands.IsolationUserLandlock, commands.IsolationLandlock
	if os.Geteuid() != 0 {
		level, not = commands.IsolationLandlock, commands.IsolationUser
	}

	require.Regexp(t, `(?m)^isolation: `+regexp.QuoteMeta(level)+`$`, ask("test", "--", "true").out)
	require.NotContains(t, ask("test", "--", "true").out, "policy.yaml")
	require.Regexp(t, `(?m)^isolation: `+regexp.QuoteMeta(level)+`$`, ask("explain", "--isolation", "landlock", "--", "true").out)
	require.NoError(t, os.WriteFile(policy.File(dir), []byte(policy.Presets["open"]+"isolation: "+not+"\n"), 0o600))
	unheld := ask("test", "--", "true")
	require.Equal(t, exitNoSpoke, unheld.code)
	require.Contains(t, unheld.err, "isolation "+not+" does not hold on this host: ")
	explained := ask("explain", "--", "true").out
	require.Contains(t, explained, "refused (CAPABILITY): this spoke cannot confine agents as its policy demands\nby line 4: *\nisolation "+not+" does not hold on this host: ")
	doctor := typed(t, "--data-dir", dir, "doctor").out
	require.Len(t, regexp.MustCompile(`(?m)^kill level +(cgroup|tree): the `).FindAllString(doctor, -1), 1, "the spoke's alone: who asks may be in another cgroup")
	require.Contains(t, doctor, "\nbubble ")
	require.Contains(t, explained, "this is what policy.yaml says; the spoke that runs here obeys policy ")
	require.Contains(t, ask("reload").err, "isolation "+not+" does not hold on this host: ")
}

// A spoke that starts no program as it cannot confine it says so to its hub, which shows it.
func TestASpokeThatCannotConfineIsShown(t *testing.T) {
	t.Parallel()
	m := startHub(t)
	withCluster(t, filepath.Join(m.Dir, "attic"))
	not := commands.IsolationLandlock
	if os.Geteuid() != 0 {
		not = commands.IsolationUser
	}
	require.NoError(t, m.AddSpoke(t.Context(), "attic", policy.Presets["open"]+"isolation: "+not+"\n", "--heartbeat", "1s"))
	typed := func(words ...string) string {
		return typed(t, append([]string{"--data-dir", m.Hub.Dir}, words...)...).out
	}
	require.Eventually(t, func() bool { return strings.Contains(typed("connections", "show", "attic"), "policy demands") }, stuck, 100*time.Millisecond)

	require.Regexp(t, `(?m)^trouble +starts no program: it cannot confine agents as its policy demands; on its host, spawnmesh doctor says why$`, typed("connections", "show", "attic"))
	require.Contains(t, typed("connections", "list"), "attic: starts no program: it cannot confine agents as its policy demands")
	require.Regexp(t, `(?m)^spoke attic +starts no program: it cannot confine agents as its policy demands; see: `, typed("doctor"))
}

// A peer of before says nothing, and one that was never seen, or is a hub, has nothing to say.
func TestAPeerThatDoesNotSayItsIsolation(t *testing.T) {
	t.Parallel()
	now := time.Now()
	view := func(authority store.Authority, seen *time.Time, says string) connectionView {
		return connectionView{SpokeView: hub.SpokeView{Standing: federation.Standing{Connection: store.Connection{Authority: authority, State: store.Active}, LastSeen: seen}, Isolation: says}}
	}
	require.Equal(t, "not said", isolationOf(view(store.Commands, &now, "")))
	require.Equal(t, "user", isolationOf(view(store.Commands, &now, "user")))
	require.Empty(t, isolationOf(view(store.Commands, nil, "")))
	require.Empty(t, isolationOf(view(store.Obeys, &now, "")))
}

// What a hub demands of all holds for an order that demands less.
func TestAHubDemandsIsolation(t *testing.T) {
	t.Parallel()
	m := startHub(t, "--min-isolation", "user")
	withCluster(t, filepath.Join(m.Dir, "attic"))
	require.NoError(t, m.AddSpoke(t.Context(), "attic", loose, "--heartbeat", "1s"))
	h := hand{t: t, dir: m.Hub.Dir}

	got := h.run("", "spawn", "--spoke", "attic", "--wait", "--", "true")

	require.Equal(t, exitNoSpoke, got.code, got.err)
	require.Contains(t, got.out+got.err, "does not confine agents by user")
	require.Zero(t, h.run("", "spawn", "--spoke", "attic", "--wait", "--runtime", "noop").code, "nothing is started, so nothing is confined")
	require.Equal(t, exitMisuse, hand{t: t, dir: t.TempDir()}.run("", "hub", "run", "--link", "127.0.0.1:0", "--min-isolation", "gaol").code)
}
