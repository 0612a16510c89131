package main

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/fleet"
)

// Thirty agents on two spokes: a selector ends those that it selects, and nobody else.
func TestKillBySelector(t *testing.T) {
	t.Parallel()
	m := startMesh(t, "--slots", "20")
	require.NoError(t, m.AddSpoke(t.Context(), "cellar", loose, "--heartbeat", "1s", "--slots", "20"))
	h := hand{t: t, dir: m.Hub.Dir}
	marker := fmt.Sprintf("600.%d", os.Getpid())
	ids := map[string][]string{} // by app and spoke
	for i := range 30 {
		app, spoke := []string{"web", "web", "db", "db", "none"}[i%5], []string{"attic", "cellar"}[i%2]
		args := []string{"--spoke", spoke, "--", "sleep", marker}
		if app != "none" {
			args = slices.Concat([]string{"--label", "app=" + app, "--label", "n=" + fmt.Sprint(i%3)}, args)
		}
		ids[app+" "+spoke] = append(ids[app+" "+spoke], h.spawn(args...))
	}
	open := func() (all []string) {
		all = strings.Fields(h.do("agents", "--open", "-o", "name"))
		slices.Sort(all)
		return all
	}
	await := func(what string, holds func() bool) {
		require.NoError(t, fleet.Poll(t.Context(), time.Minute, "waiting until "+what, func() (bool, error) { return holds(), nil }))
	}
	await("all run", func() bool { return len(strings.Fields(h.do("agents", "--state", "running", "-o", "name"))) == 30 })

	for words, args := range map[string][]string{
		"a kill needs a reason":                {"-l", "app=web"},
		"add --reason":                         {"-l", "app=web", "--reason", " ", "--yes"},
		"nothing was killed: 12 agents would":  {"-l", "app=web", "--reason", "x"},
		"add --yes if you mean it":             {"--all", "--reason", "x"},
		"ids name agents, and so do":           {ids["web attic"][0], "-l", "app=web", "--reason", "x"},
		"--all is all agents":                  {"--all", "--spoke", "attic", "--reason", "x"},
		"no agent is named":                    {"--reason", "x"},
		"nothing is asked where ids name":      {ids["web attic"][0], "--yes", "--reason", "x"},
		"-l is empty":                          {"-l", "", "--reason", "x", "--yes"},
		"grace of 660000 ms is outside":        {"-l", "app=none", "--grace", "11m", "--reason", "x", "--yes"},
		"12 agents will be killed: 6 on attic": {"-l", "app=web", "--reason", "x"},
	} {
		h.refused(exitMisuse, words, append([]string{"kill"}, args...)...)
	}
	h.refused(exitNotFound, "attick", "kill", "--spoke", "attick", "--reason", "x", "--yes")
	require.Equal(t, said{"", "no open agents are selected that are to be killed\n", 0}, h.run("", "kill", "-l", "app=none", "--reason", "x"))
	require.Len(t, open(), 30, "nobody was killed")

	some := h.run("", "kill", "--spoke", "attic", "-l", "app=web", "--reason", "bad release", "--grace", "100ms", "--yes")
	require.Equal(t, said{"the kill of 6 agents is ordered\n", "6 agents will be killed: 6 on attic\n", 0}, some)
	again := h.run("", "kill", "--spoke", "attic", "-l", "app=web", "--reason", "bad release", "--yes")
	require.Zero(t, again.code)
	require.NotContains(t, again.err, "no agents", "also while they end")
	var sum hub.KillSummary
	h.read(&sum, 0, "kill", "-l", "app=web,n!=7", "--reason", "bad release", "--grace", "100ms", "--yes")
	require.Equal(t, hub.KillSummary{Killed: 6, Refused: []hub.KillRefused{}}, sum)
	rest := slices.Concat(ids["db attic"], ids["db cellar"], ids["none attic"], ids["none cellar"])
	slices.Sort(rest)
	await("the killed have ended", func() bool { return len(open()) <= len(rest) })
	require.Equal(t, rest, open(), "and nobody else")
	var killed []hub.AgentView
	h.read(&killed, 0, "agents", "-l", "app=web")
	require.Len(t, killed, 12)
	for _, v := range killed {
		require.Equal(t, commands.Cancelled, v.State)
		require.Contains(t, string(v.Kill), "bad release")
	}
	require.Equal(t, 18, processes(t, "sleep", marker))

	h.do("cancel", ids["none attic"][0], "--graceful", "--reason", "when it is done") // which a kill of all does not wait for

	at := func(answer string) said {
		keyboard, screen := aTerminal(t, 100)
		return answers(t, keyboard, screen, answer, "--data-dir", h.dir, "kill", "--all", "--reason", "the end", "--grace", "100ms")
	}
	no := at("n\n")
	require.Equal(t, exitMisuse, no.code)
	require.Contains(t, no.err, "18 agents will be killed: 9 on attic, 9 on cellar\nkill them? [y/N] ")
	require.Equal(t, rest, open())
	require.Equal(t, "the kill of 18 agents is ordered\n", at("y\n").out)
	await("all have ended", func() bool { return len(open()) == 0 })
	require.Zero(t, processes(t, "sleep", marker))
}

// A person reads what became of the agents that are killed together, and of those that came meanwhile.
func TestWhatAKillOfManySays(t *testing.T) {
	t.Parallel()
	for later, want := range map[int]string{0: "", 1: "1 agent came after you looked; it goes on\n", 2: "2 agents came after you looked; they go on\n"} {
		var out, errOut bytes.Buffer
		a := &app{output: "table", out: &out, err: &errOut, getenv: func(string) string { return "" }}
		require.NoError(t, a.printKilled(hub.KillSummary{Killed: 3, EndedAlready: 1, Later: later}))
		require.Equal(t, want, errOut.String())
		require.Equal(t, "the kill of 3 agents is ordered; 1 had ended meanwhile\n", out.String())
	}
}

// The owner of a host ends all that runs there, whoever ordered it: where he sits, by its own word.
func TestTheHostKillsAll(t *testing.T) {
	t.Parallel()
	m := startMesh(t, "--slots", "2")
	h, s := hand{t: t, dir: m.Hub.Dir}, hand{t: t, dir: m.Spokes["attic"].Dir}
	require.Equal(t, said{"", "no agents to kill\n", 0}, s.run("", "kill", "--all", "--reason", "x"))
	require.Contains(t, s.run("", "ps").err, "no agents yet; hubs order them: ")
	ids := []string{h.spawn("--", "sleep", "600"), h.spawn("--", "sleep", "600"), h.spawn("--", "sleep", "600")}
	h.runs(ids[0])
	h.runs(ids[1])
	require.NoError(t, fleet.Poll(t.Context(), time.Minute, "waiting for what is queued", func() (bool, error) {
		return len(strings.Fields(s.do("agents", "--open", "-o", "name"))) == 3, nil
	}))
	for _, args := range [][]string{{"-l", "app=web"}, {"--spoke", "attic"}} {
		s.refused(exitMisuse, "is a spoke; this is asked of its hub", append([]string{"kill", "--yes", "--reason", "x"}, args...)...)
	}
	h.do("cancel", ids[0], "--graceful", "--reason", "when it is done")
	require.NoError(t, fleet.Poll(t.Context(), time.Minute, "waiting until the host knows", func() (bool, error) {
		return strings.Contains(s.do("status", ids[0], "-o", "json"), `"cancel": "after"`), nil
	}))
	s.refused(exitMisuse, "3 agents will be killed: 3 on this host by order of lab", "kill", "--all", "--reason", "x")

	all := s.run("", "kill", "--all", "--reason", "smoke", "--grace", "100ms", "--yes")

	require.Equal(t, said{"the kill of 3 agents is ordered\n", "3 agents will be killed: 3 on this host by order of lab\n", 0}, all)
	for _, id := range ids {
		v := h.ends(id)
		require.Equal(t, commands.Cancelled, v.State)
		require.Contains(t, resultOf(v).Summary, "killed by the host of the spoke")
	}
	require.Contains(t, s.run("", "logs", ids[2]).err, "agent "+commands.ShortID(ids[2])+" never started, so it wrote nothing: ")
}
