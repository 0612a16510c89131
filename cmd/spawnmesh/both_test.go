package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation/join"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/fleet"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
)

// A middle is an instance with both roles: lab commands it, and it commands cellar.
type middle struct {
	lab, annex *fleet.Mesh // annex is the middle one, as a hub
	a, b, c    hand        // at lab, annex and cellar
	link       *meshtest.Proxy
	tr         trace
}

// startMiddle makes a hub of annex first. It joins lab while it runs.
func startMiddle(t *testing.T) *middle {
	t.Helper()
	m := &middle{link: meshtest.NewProxy(t, "127.0.0.1:1"), tr: newTrace(t)}
	m.lab = startHub(t, "--advertise", m.link.Addr())
	m.link.Target(m.lab.Hub.Args[3])
	m.annex = startHub(t, "--name", "annex", "--heartbeat", "1s", "--drain", "0s")
	require.NoError(t, m.annex.AddSpoke(t.Context(), "cellar", loose, "--heartbeat", "1s"))
	m.a, m.b, m.c = hand{t: t, dir: m.lab.Hub.Dir}, hand{t: t, dir: m.annex.Hub.Dir}, hand{t: t, dir: m.annex.Spokes["cellar"].Dir}
	m.joins(t)
	return m
}

func (m *middle) joins(t *testing.T) {
	t.Helper()
	require.Regexp(t, `(?m)^instance +hub, pid \d+$`, m.b.do("doctor"))
	require.NoError(t, os.WriteFile(policy.File(m.b.dir), []byte(loose), 0o600))
	m.b.do("spoke", "policy", "reload")
	text, _ := m.a.invite("annex")
	joined := m.b.run(text, "spoke", "join", "--yes")
	require.Zero(t, joined.code, joined.err)
	require.NotContains(t, joined.err, "then start", "it runs, and takes up the hub by itself")
	require.NoError(t, m.lab.AwaitLink(t.Context(), "annex"))
}

// gated orders an agent that leaves a trace and waits for the gate.
func (m *middle) gated(h hand, spoke, id string, g gate) string {
	h.t.Helper()
	h.do("spawn", "--spoke", spoke, "--id", id, "--", "sh", "-c", "echo start "+id+" >> "+m.tr.path+"; "+g.wait()+"; echo end "+id+" >> "+m.tr.path)
	return id
}

// quick orders an agent that leaves a trace and ends.
func (m *middle) quick(h hand, spoke string) string {
	h.t.Helper()
	id := newID()
	h.do(append([]string{"spawn", "--spoke", spoke, "--id", id, "--"}, m.tr.agent(id, "0")...)...)
	return id
}

// ranOnce checks that agents completed, by the word of who ordered them and by
// what they did.
func (m *middle) ranOnce(t *testing.T, h hand, ids ...string) {
	t.Helper()
	for _, id := range ids {
		v := h.ends(id)
		require.Equal(t, commands.Completed, v.State, "%s", v.Sentence())
		require.Equal(t, 1, v.Attempt)
		starts, ends := m.tr.counts(t)
		require.Equal(t, []int{1, 1}, []int{starts[id], ends[id]})
	}
}

// One instance is the spoke of lab and the hub of cellar, in one process: each role
// does its own, whatever happens to the other one's peers.
func TestAHubIsAnotherHubsSpoke(t *testing.T) {
	t.Parallel()
	m := startMiddle(t)
	g := newGate(t)
	first := newID()
	here, below := m.gated(m.a, "annex", first[:35]+"0", g), m.gated(m.b, "cellar", first[:35]+"1", g)
	m.a.runs(here)
	m.b.runs(below)

	bothSee(t, m, here, below)
	labIsAway(t, m, here)
	stays := newGate(t)
	here = m.gated(m.a, "annex", newID(), stays)
	m.a.runs(here)
	annexDies(t, m, here, below, g)
	below = m.gated(m.b, "cellar", newID(), stays)
	m.b.runs(below)
	labRevokes(t, m, here, below, stays)
	annexStops(t, m)
}

// bothSee looks at what the commands say where both roles live.
func bothSee(t *testing.T, m *middle, here, below string) {
	require.Regexp(t, `(?m)^instance +hub and spoke, pid \d+$`, m.b.do("doctor"))
	require.Regexp(t, `(?m)^link to lab +ok$`, m.b.do("doctor"))
	require.Contains(t, m.b.do("health"), "hub and spoke")
	require.Regexp(t, `(?m)^NAME +IS +STATE .*\nlab +hub +active +up .*\ncellar +spoke +active +up `, m.b.do("connections", "list"))
	require.Regexp(t, `(?m)^authority +this instance obeys lab$`, m.b.do("connections", "show", "lab"))
	require.Regexp(t, `(?m)^authority +this instance commands cellar$`, m.b.do("connections", "show", "cellar"))
	for _, line := range []string{`ID +SPOKE +HUB +STATE `, commands.ShortID(below) + ` +cellar +- +running `, commands.ShortID(here) + ` +- +lab +running `} {
		require.Regexp(t, `(?m)^`+line, m.b.do("agents"))
	}
	require.Equal(t, here, strings.TrimSpace(m.b.do("-o", "name", "agents", "--hub", "lab")))
	require.Equal(t, below, strings.TrimSpace(m.b.do("-o", "name", "agents", "--spoke", "cellar")))
	require.Equal(t, here, strings.TrimSpace(m.a.do("-o", "name", "agents")), "what annex orders is not lab's business")
	require.Equal(t, below, strings.TrimSpace(m.c.do("-o", "name", "agents")), "what lab orders stays on annex")
	require.Regexp(t, `(?m)^hub +lab$`, m.b.do("status", here))
	require.Regexp(t, `(?m)^spoke +cellar$`, m.b.do("status", "--ask", below))
	require.Equal(t, "it is running here, as attempt 1\n", m.b.do("why", here))
	require.Contains(t, m.b.do("why", below), "it is running")
	require.Contains(t, m.b.do("connections", "grant", "lab", "--weight", "2"), "lab may now ask for")
	m.b.refused(exitMisuse, "is decided by the host of the spoke", "connections", "grant", "cellar", "--weight", "2")
	m.b.refused(exitMisuse, "runs here, by order of a hub", "status", "--ask", here)
	m.b.refused(exitMisuse, "1 agent that other hubs ordered here", "kill", "--all", "--reason", "x")
	m.b.refused(exitMisuse, "1 agent will be killed: 1 on cellar", "kill", "--all", "--reason", "x")
	m.b.refused(exitMisuse, "lab is a hub that this instance obeys", "spawn", "--spoke", "lab", "--", "true")
	names := here[:35] + ` names several agents: ` + commands.ShortID(here) + ` \(\w+ here, by order of lab\), ` + commands.ShortID(below) + ` \(\w+ on cellar\)`
	require.Regexp(t, names+`\n`, m.b.run("", "kill", here[:35], "--reason", "x").err)
	again := here[:35] + "2" // now one is away and two are here
	m.a.do("spawn", "--spoke", "annex", "--id", again, "--", "true")
	m.a.ends(again)
	names = here[:35] + ` names several agents: ` + commands.ShortID(again) + ` \(\w+ here, by order of lab\), ` + commands.ShortID(here) + ` \(\w+ here, by order of lab\), ` + commands.ShortID(below) + ` \(\w+ on cellar\)\n`
	for _, line := range [][]string{{"kill", here[:35], "--reason", "x"}, {"status", here[:35]}, {"why", here[:35]}, {"logs", here[:35]}} {
		s := m.b.run("", line...)
		require.Equal(t, exitMisuse, s.code)
		require.Regexp(t, names, s.err)
	}
	require.Equal(t, "it is running\n", m.b.do("why", below))
	m.b.refused(exitConflict, "a connection named lab is there already", "invite", "--name", "lab")
	before := m.a.spawn("--", "sh", "-c", "echo here")
	m.a.ends(before)
	require.Equal(t, "here\n", m.b.do("logs", before))
	said := m.b.spawn("--", "sh", "-c", "echo below") // cellar is the only spoke
	m.b.ends(said)
	require.Equal(t, "below\n", m.b.do("logs", "-f", said))
	killed := m.a.spawn("--", "sleep", "600")
	m.a.runs(killed)
	m.b.do("kill", killed, "--reason", "my machine", "--grace", "0s")
	require.Equal(t, commands.Operator, m.a.ends(killed).Reason)
	require.Equal(t, []string{killed, said, before}, strings.Fields(m.b.do("-o", "name", "agents"))[:3], "the newest first, wherever it runs")
}

// labIsAway cuts the link to lab: annex goes on with cellar, and what lab orders
// meanwhile runs afterwards.
func labIsAway(t *testing.T, m *middle, here string) {
	m.link.Cut()
	require.NoError(t, fleet.Poll(t.Context(), time.Minute, "waiting for the cut", func() (bool, error) {
		var v connectionView
		m.b.read(&v, 0, "connections", "show", "lab")
		return !v.Linked, nil
	}))
	waits := m.quick(m.a, "annex")
	during := m.quick(m.b, "cellar")

	m.ranOnce(t, m.b, during)

	require.Contains(t, m.b.run("", "doctor").out, "link to lab")
	require.Zero(t, m.b.run("", "health").code, "it serves its spoke")
	starts, _ := m.tr.counts(t)
	require.Zero(t, starts[waits])
	m.link.Heal()
	m.ranOnce(t, m.a, waits)
	require.Equal(t, commands.Running, m.a.until(here, func(hub.AgentView) bool { return true }).State)
}

// annexDies as a crash would end it, with an agent of lab, an order to cellar under
// way and an order of lab that it has not seen.
func annexDies(t *testing.T, m *middle, here, below string, g gate) {
	sent := m.quick(m.b, "cellar")
	m.annex.Hub.Kill()
	waits := m.quick(m.a, "annex")
	g.open(t)

	require.NoError(t, m.annex.Hub.Start(t.Context()))

	require.NoError(t, m.lab.AwaitLink(t.Context(), "annex"))
	require.NoError(t, m.annex.AwaitLink(t.Context(), "cellar"))
	m.ranOnce(t, m.b, sent, below)
	m.ranOnce(t, m.a, waits)
	v := m.a.until(here, func(v hub.AgentView) bool { return v.State == commands.Running })
	require.Equal(t, 1, v.Attempt, "it was adopted")
	require.NoError(t, m.lab.Settled(t.Context()))
	require.NoError(t, fleet.Poll(t.Context(), time.Minute, "waiting for confirmations", func() (bool, error) {
		var list []connectionView
		m.b.read(&list, 0, "connections", "list")
		return len(list) == 2 && list[1].Name == "cellar" && list[1].Unconfirmed == 0, nil
	}))
}

// labRevokes annex: lab's agents there end, annex and cellar go on.
func labRevokes(t *testing.T, m *middle, here, below string, stays gate) {
	m.a.do("connections", "revoke", "annex", "--reason", "over", "--yes")

	v := m.b.ends(here)
	require.Equal(t, commands.Cancelled, v.State, "%s", v.Sentence())
	require.Equal(t, commands.LinkRevoked, m.a.ends(here).Reason)
	require.Regexp(t, `(?m)^cellar +spoke +active +up .*\nlab +hub +revoked +- `, m.b.do("connections", "list", "--all"))
	require.Equal(t, commands.Running, m.b.until(below, func(hub.AgentView) bool { return true }).State)
	stays.open(t)
	m.ranOnce(t, m.b, below, m.quick(m.b, "cellar"))
	_, ends := m.tr.counts(t)
	require.Zero(t, ends[here], "its agent ended with the connection")
}

// annexStops, and says what it needs to run again.
func annexStops(t *testing.T, m *middle) {
	require.NoError(t, m.annex.Hub.Stop(t.Context()))
	raw, err := os.ReadFile(filepath.Join(m.annex.Hub.Dir, "log"))
	require.NoError(t, err)
	require.Contains(t, string(raw), `msg="spoke has stopped" agents_left_running=0`)
	require.Contains(t, string(raw), `msg="hub has stopped"`)
	m.b.refused(exitConflict, "this instance has spokes of its own: cellar", "spoke", "run")
	list := m.b.run("", "agents")
	require.Zero(t, list.code, list.err)
	require.Contains(t, list.err, "only agents of this host are known")
	require.Regexp(t, `(?m)^ID +HUB +STATE`, list.out)
	require.NoError(t, m.annex.Hub.Start(t.Context()))
	m.ranOnce(t, m.b, m.quick(m.b, "cellar"))
}

// A hub that joins another one while it runs obeys the policy that the join has shown for consent; where the file and what is in force differ, that is said.
func TestAHubJoinsUnderThePolicyThatIsShown(t *testing.T) {
	t.Parallel()
	lab, annex := startHub(t), startHub(t, "--name", "annex", "--drain", "0s")
	a, b := hand{t: t, dir: lab.Hub.Dir}, hand{t: t, dir: annex.Hub.Dir}
	require.NoError(t, os.WriteFile(policy.File(b.dir), []byte(loose), 0o600))
	text, _ := a.invite("annex")
	joined := b.run(text, "spoke", "join", "--yes")
	require.Zero(t, joined.code, joined.err)
	require.NotContains(t, joined.err, "obeys policy")
	require.NoError(t, lab.AwaitLink(t.Context(), "annex"))
	v := a.ends(a.spawn("--", "true"))
	require.Equal(t, commands.Completed, v.State, "%s", v.Sentence())
	require.NotContains(t, b.run("", "doctor").out, "policy in force")

	require.NoError(t, os.WriteFile(policy.File(b.dir), []byte(policy.Presets["deny"]), 0o600))

	require.Contains(t, b.run("", "doctor").out, "this is what policy.yaml says; the spoke that runs here obeys policy ")
}

// A spoke that runs joins a second hub under another policy than the one in force: who agrees is told, and what was
// agreed to is in force for both hubs before the second can order anything. Who does not agree has changed nothing.
func TestALaterJoinPutsInForceWhatItHasShown(t *testing.T) {
	t.Parallel()
	lab, other := startHub(t), startHub(t, "--name", "other")
	require.NoError(t, lab.AddSpoke(t.Context(), "attic", loose, "--heartbeat", "1s"))
	a, b, s := hand{t: t, dir: lab.Hub.Dir}, hand{t: t, dir: other.Hub.Dir}, hand{t: t, dir: lab.Spokes["attic"].Dir}
	require.Equal(t, commands.Completed, a.ends(a.spawn("--", "true")).State)
	require.NoError(t, os.WriteFile(policy.File(s.dir), []byte(policy.Presets["deny"]), 0o600))
	text, token := b.invite("attic")
	inForce := func() string { return s.run("", "doctor").out }

	asked := s.run(text, "spoke", "join")

	require.Equal(t, exitMisuse, asked.code)
	require.Regexp(t, `(?m)^until now policy \w+ is in force here; joining puts policy.yaml in its place, for all hubs$`, asked.err)
	require.Contains(t, inForce(), "the spoke that runs here obeys policy ", "nobody has agreed")
	spent := altered(t, token, func(k *join.Token) { k.ID = newID() })
	s.joins(exitUntrusted, "join token not accepted", spent)
	require.NotContains(t, inForce(), "the spoke that runs here obeys policy ", "it is in force before the hub is asked")
	require.NoError(t, os.WriteFile(policy.File(s.dir), []byte(loose+"on_revoke: finish\n"), 0o600))
	joined := s.run(text, "-o", "json", "spoke", "join", "--yes")
	require.Zero(t, joined.code, joined.err)
	require.Contains(t, joined.out, `"policy_reread": true`)
	require.Regexp(t, `^policy \w+ is in force here, for all hubs; it was \w+`, joined.err)
	require.NotContains(t, inForce(), "the spoke that runs here obeys policy ")
	require.NoError(t, other.AwaitLink(t.Context(), "attic"))
	require.Equal(t, commands.Completed, b.ends(b.spawn("--", "true")).State)
	shown, err := policy.Parse([]byte(policy.Presets["deny"]))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(policy.File(s.dir), []byte(policy.Presets["open"]), 0o600))
	_, err = (&app{err: io.Discard}).obeyShown(t.Context(), consent{dir: s.dir, rules: shown})
	require.ErrorContains(t, err, "policy.yaml was changed meanwhile")
	require.Contains(t, inForce(), "the spoke that runs here obeys policy ", "what nobody was shown is not in force")
}

// A preset that is written at a join opens the host to the hubs that it has joined before, too.
func TestAPresetIsForAllHubs(t *testing.T) {
	t.Parallel()
	lab, other := startHub(t), startHub(t, "--name", "other")
	require.NoError(t, lab.AddSpoke(t.Context(), "attic", loose, "--heartbeat", "1s"))
	b, s := hand{t: t, dir: other.Hub.Dir}, hand{t: t, dir: lab.Spokes["attic"].Dir}
	require.NoError(t, os.Remove(policy.File(s.dir)))
	text, _ := b.invite("attic")
	asks := func() string {
		asked := s.run(text, "spoke", "join", "--preset", "open")
		require.Equal(t, exitMisuse, asked.code, asked.err)
		require.Contains(t, asked.err, "\nthe policy is for all hubs of this host, so also for: lab\n")
		return asked.err
	}

	require.Regexp(t, `(?m)^until now policy \w+ is in force here; joining puts policy.yaml in its place, for all hubs$`, asks())
	require.NoError(t, lab.Spokes["attic"].Stop(t.Context()))
	asks()
	require.NoFileExists(t, policy.File(s.dir))
}
