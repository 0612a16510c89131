package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/canary"
	"github.com/spawnmesh/spawnmesh/internal/fleet"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
	"github.com/spawnmesh/spawnmesh/store/postgres"
)

// cage is a hub and a spoke, and values that must be found nowhere but with their agents.
type cage struct {
	*fleet.Mesh
	t        *testing.T
	hand     hand
	flags    []string // of a spawn, with all values
	secrets  []*canary.Canary
	witness  *canary.Canary // the name of a variable: whoever looks well finds it
	programs string         // of Postgres
}

func newCage(t *testing.T) *cage {
	t.Helper()
	m := startHub(t)
	withCluster(t, filepath.Join(m.Dir, "attic"))
	// Agents are confined as this host can: its own directory is all that an agent has.
	require.NoError(t, m.AddSpoke(t.Context(), "attic", policy.Presets["open"], "--heartbeat", "1s"))
	programs, err := postgres.Find(t.Context(), "")
	require.NoError(t, err)
	plain, secret, variable, file, brought, stdin := canary.New(), canary.New(), canary.New(), canary.New(), canary.New(), canary.New()
	c := &cage{m, t, hand{t: t, dir: m.Hub.Dir, env: []string{"FROM_HERE=" + variable.Value}}, nil, []*canary.Canary{plain, secret, variable, file, brought, stdin},
		canary.Of("WITNESS_" + strings.NewReplacer("-", "_").Replace(canary.New().Value)), programs}
	dir := t.TempDir()
	put := func(name string, of *canary.Canary) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(of.Value+"\n"), 0o600))
		return path
	}
	c.flags = []string{"--env", "PLAIN=" + plain.Value, "--env", c.witness.Value + "=x", "--secret", "SECRET=@" + put("secret", secret),
		"--secret", "VARIABLE=env:FROM_HERE", "--secret-file", "KEY=@" + put("file", file),
		"--file", put("brought", brought) + ":in/brought", "--stdin"}
	return c
}

func (c *cage) spawn(flags []string, argv ...string) string {
	c.t.Helper()
	s := c.hand.run(c.secrets[5].Value, slices.Concat([]string{"spawn", "-o", "name"}, c.flags, flags, []string{"--"}, argv)...)
	require.Zero(c.t, s.code, s.err)
	return strings.TrimSpace(s.out)
}

// clean fails when a canary is in a text that was shown.
func (c *cage) clean(what string, text ...string) {
	c.t.Helper()
	for i, s := range c.secrets {
		require.False(c.t, s.In([]byte(strings.Join(text, "\n"))), "%s shows canary %d", what, i)
	}
}

// agents reports whether a path is an agent's own.
func (c *cage) agents(path string) bool {
	rest, ok := strings.CutPrefix(path, filepath.Join(c.Spokes["attic"].Dir, "agents")+"/")
	parts := strings.Split(rest, "/")
	return ok && len(parts) == 3 && parts[2] != "control"
}

// What an order brings for its agent is where the agent is, and nowhere else: not in what
// anybody is shown, not in a file or a database, a dump, a backup or a log, and not in another
// process, however the order ends and however the programs do.
func TestCanariesAreNowhereElse(t *testing.T) {
	t.Parallel()
	c := newCage(t)
	says := `echo "$SECRET $VARIABLE"; cat "$KEY" >&2; printf "$SECRET:$VARIABLE" | base64 -w0; `
	ends := map[string]commands.State{
		c.spawn(nil, "sh", "-c", says):                                      commands.Completed,
		c.spawn([]string{"--any"}, "sh", "-c", says):                        commands.Completed,
		c.spawn(nil, "sh", "-c", says+"exit 3"):                             commands.Failed,
		c.spawn(nil, "sh", "-c", says+"ulimit -c unlimited; kill -SEGV $$"): commands.Failed,
		c.spawn([]string{"--timeout", "300ms"}, "sleep", "600"):             commands.Expired,
		c.spawn(nil, "/no/such/program"):                                    commands.Unavailable,
	}
	for id, want := range ends {
		require.Equal(t, want, c.hand.ends(id).State, id)
	}
	refused := c.spawn([]string{"--secret", "LD_PRELOAD=env:FROM_HERE"}, "true")
	require.Equal(t, commands.PolicyDenied, c.hand.ends(refused).Reason)
	ends[refused] = commands.Unavailable
	runs := c.spawn(nil, "sleep", "600")
	c.hand.runs(runs)

	c.processes()
	c.shown(append(keysOf(ends), runs))
	c.files("while an agent runs")
	c.dumps()
	killed := c.hand.run("", "kill", runs, "--reason", "enough") // 4 where it was quicker than the answer
	require.Contains(t, []int{0, 4}, killed.code, killed.err)
	c.clean("kill", killed.out, killed.err)
	require.Equal(t, commands.Cancelled, c.hand.ends(runs).State)
	c.crash()
	c.files("after a crash of both")
}

func keysOf(m map[string]commands.State) (list []string) {
	for k := range m {
		list = append(list, k)
	}
	return list
}

// processes looks at all processes, but for those of the agent itself.
func (c *cage) processes() {
	c.t.Helper()
	own := 0
	agent := func(pid string) bool {
		environ, _ := os.ReadFile("/proc/" + pid + "/environ")
		is := strings.Contains(string(environ), "SPAWNMESH_MARKER=") && c.secrets[0].In(environ)
		if is {
			own++
		}
		return is
	}
	hits, err := canary.Processes(agent, c.secrets...)
	require.NoError(c.t, err)
	require.Empty(c.t, hits)
	require.NotZero(c.t, own, "the agent has its values")
}

// shown looks at what people are shown on both sides.
func (c *cage) shown(ids []string) {
	c.t.Helper()
	there := hand{t: c.t, dir: c.Spokes["attic"].Dir}
	marks := 0
	for _, id := range ids {
		for _, words := range [][]string{{"status", id}, {"-o", "json", "status", id}, {"status", "--ask", id}, {"why", id}, {"logs", id}, {"-o", "json", "logs", id}} {
			s := c.hand.run("", words...)
			require.NotEqual(c.t, 2, s.code, "%v: %s", words, s.err)
			c.clean(strings.Join(words, " "), s.out, s.err)
			marks += strings.Count(s.out, "[redacted]")
		}
		s := there.run("", "logs", id)
		require.NotEqual(c.t, 2, s.code, s.err)
		c.clean("logs on the host", s.out, s.err)
	}
	for _, words := range [][]string{{"agents"}, {"-o", "json", "agents"}, {"audit", "list"}, {"-o", "json", "audit", "list"}, {"connections", "show", "attic"}, {"doctor"}, {"-o", "json", "doctor"}, {"keys", "list"}} {
		for side, h := range map[string]hand{"hub": c.hand, "spoke": there} {
			s := h.run("", words...)
			require.NotEqual(c.t, 2, s.code, "%v: %s", words, s.err)
			c.clean(side+": "+strings.Join(words, " "), s.out, s.err)
		}
	}
	require.True(c.t, c.witness.In([]byte(c.hand.do("-o", "json", "status", ids[0]))), "names are shown")
	require.NotZero(c.t, marks, "agents have written their secrets")
}

// files looks at all files of both instances: databases, message stores, logs, output, and
// what a crash would leave.
func (c *cage) files(when string) {
	c.t.Helper()
	hits, err := canary.Files(c.Dir, c.agents, c.secrets...)
	require.NoError(c.t, err)
	require.Empty(c.t, hits, when)
	cores, err := filepath.Glob("core*")
	require.NoError(c.t, err)
	require.Empty(c.t, cores, "the program leaves no core file")
}

// dumps looks at what people copy: a dump of each database, and a backup, which is compressed.
func (c *cage) dumps() {
	c.t.Helper()
	for _, dir := range []string{c.Hub.Dir, c.Spokes["attic"].Dir} {
		guest, err := postgres.Visit(c.t.Context(), dir)
		require.NoError(c.t, err)
		dump, err := exec.CommandContext(c.t.Context(), filepath.Join(c.programs, "pg_dump"), "--enable-row-security", "--inserts", "-d", guest.URL()).CombinedOutput()
		require.NoError(c.t, errors.Join(err, guest.Close()), "%s", dump)
		c.clean("the dump of "+dir, string(dump))
		require.True(c.t, c.witness.In(dump), "the dump has the names")
		backup := c.t.TempDir()
		copied := exec.CommandContext(c.t.Context(), filepath.Join(c.programs, "pg_basebackup"), "-h", filepath.Join(dir, "run"), "-U", "spawnmesh_backup", "-c", "fast", "-Ft", "-z", "-X", "fetch", "-D", backup)
		copied.Env = append(os.Environ(), "PGPASSFILE="+filepath.Join(dir, "keys", "pgpass"))
		out, err := copied.CombinedOutput()
		require.NoError(c.t, err, "%s", out)
		hits, err := canary.Files(backup, nil, c.secrets...)
		require.NoError(c.t, err)
		require.Empty(c.t, hits)
		seen, err := canary.Files(backup, nil, c.witness)
		require.NoError(c.t, err)
		require.Equal(c.t, []string{filepath.Join(backup, "base.tar.gz")}, seen, "what is compressed is looked into")
	}
}

// crash ends both programs as a panic does: they write what all goroutines do, and would leave
// a core file if they might.
func (c *cage) crash() {
	c.t.Helper()
	for _, n := range []*fleet.Process{c.Spokes["attic"], c.Hub} {
		require.NoError(c.t, n.Cmd.Process.Signal(syscall.SIGABRT))
		n.Wait()
		log, err := os.ReadFile(filepath.Join(n.Dir, "log"))
		require.NoError(c.t, err)
		require.Contains(c.t, string(log), "SIGABRT", "%s says how it ended", n.Name)
		c.clean(fmt.Sprintf("the log of %s", n.Name), string(log))
	}
	for _, n := range []*fleet.Process{c.Hub, c.Spokes["attic"]} {
		require.NoError(c.t, n.Start(c.t.Context()))
	}
}
