package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/acptest"
	"github.com/spawnmesh/spawnmesh/internal/fleet"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
)

// What docs/work.md tells: code with changes that are not committed goes to a coding agent of another host, it asks, its host goes down and comes back,
// it goes on in its session, its work is sent back, done again, approved and merged. No code host, and no credentials.
func TestCodeGoesToAnAgentAndItsWorkComesBack(t *testing.T) {
	t.Parallel()
	m := startHub(t)
	withCluster(t, filepath.Join(m.Dir, "attic"))
	agent := readableAgent(t)
	require.NoError(t, m.AddSpoke(t.Context(), "attic", policy.Presets["open"]+"read_paths: ["+filepath.Dir(agent)+"]\n", "--heartbeat", "1s"))
	host := &day{t: t, places: map[string]*fleet.Process{"attic": m.Spokes["attic"]}}
	h, s, repo := hand{t: t, dir: m.Hub.Dir}, host.hand("attic"), aRepository(t)
	shellIn(t, repo, "git checkout -q -b feature")
	hasProfile(t, s, "writer", agent+", "+acptest.Mode+", -load")
	shown := h.typed("spawn", "--spoke", "attic", "--with", repo, "--dirty", "--profile", "writer", "--on-loss", "rerun", "--review", "--follow",
		"--prompt", "do line echo draft >>a; git add a n\ndo may execute the tests\ndo hold\ndo line echo tested >>a\ndo say it is written")
	id := onlyAgent(t, h)

	shown("on attic: it waits for input: spawnmesh --data-dir " + h.dir + " inbox\n")
	allowIn(t, h, id)
	shown(`"optionId":"yes"`)
	require.NoError(t, host.dies("attic"))
	require.NoError(t, m.Spokes["attic"].Start(t.Context()))
	shown("attempt 2, it waits for input")
	allowIn(t, h, id)
	shown("attempt 2, it is delivered, and waits for its review: spawnmesh --data-dir " + h.dir + " review diff " + commands.ShortID(id))
	require.NotContains(t, h.do("status", id), "has not completed", "it said that it is done, and so it is")
	require.Contains(t, h.do("review", "diff", id, "--repo", repo), "+draft\n")
	h.do("review", "request-changes", id, "--message", "do line echo mended >>a\ndo say it is mended")
	shown("attempt 3, it is delivered")
	h.do("review", "approve", id)
	shown("its review has passed, and it waits for its merge")
	h.do("review", "merge", id, "--into", repo, "--onto", "main")

	shown("agent " + commands.ShortID(id) + " completed\n")
	require.Equal(t, "two\ndraft\ndraft\ntested\nmended", shellIn(t, repo, "git show main:a"))
	require.Equal(t, "spawnmesh: left by attempt 3\nspawnmesh: left by attempt 2\nspawnmesh: left by attempt 1\nspawnmesh: uncommitted files\nfirst", shellIn(t, repo, "git log --format=%s main"))
	require.Equal(t, "two", shellIn(t, repo, "cat a"), "the files of the operator are as they were")
}

// typed starts a command line as in a terminal of its own; what it returns waits until words are shown there.
func (h hand) typed(args ...string) (shown func(words string)) {
	h.t.Helper()
	name := filepath.Join(h.t.TempDir(), "terminal")
	terminal, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(h.t, err)
	c := h.command(context.WithoutCancel(h.t.Context()), args...)
	c.Stdout, c.Stderr = terminal, terminal
	require.NoError(h.t, c.Start())
	h.t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
		terminal.Close()
		if h.t.Failed() {
			raw, _ := os.ReadFile(name)
			h.t.Logf("%v: %s", args, raw)
		}
	})
	return func(words string) {
		h.t.Helper()
		require.NoError(h.t, fleet.Poll(h.t.Context(), time.Minute, "waiting until the terminal shows "+words, func() (bool, error) {
			raw, err := os.ReadFile(name)
			return strings.Contains(string(raw), words), err
		}))
	}
}

// hasProfile gives a host a profile of a coding agent.
func hasProfile(t *testing.T, s hand, name, command string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(policy.ProfileDir(s.dir), 0o700))
	require.NoError(t, os.WriteFile(policy.ProfileFile(s.dir, name), []byte("runtime: acp\ncommand: ["+command+"]\nallow: [read, search, think, edit]\n"), 0o600))
	require.Contains(t, s.do("spoke", "policy", "reload"), "is in force")
}

// onlyAgent waits for the one agent of a hub.
func onlyAgent(t *testing.T, h hand) (id string) {
	t.Helper()
	require.NoError(t, fleet.Poll(t.Context(), time.Minute, "waiting for an order", func() (bool, error) {
		id = strings.TrimSpace(h.do("agents", "-o", "name"))
		return id != "", nil
	}))
	return id
}

// allowIn has a person allow what an agent asks.
func allowIn(t *testing.T, h hand, id string) {
	t.Helper()
	h.until(id, func(v hub.AgentView) bool { return v.State == commands.AwaitingInput })
	var list []api.Question
	h.read(&list, 0, "inbox")
	require.Len(t, list, 1)
	h.do("answer", list[0].ID, "--option", "Allow")
}
