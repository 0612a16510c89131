package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/fleet"
)

// What the host of a spoke sees and may do on his own machine, with the real
// program: while the spoke runs, and while it does not.
func TestTheHostSeesAndRulesHisMachine(t *testing.T) {
	t.Parallel()
	m := startMesh(t, "--drain", "0s")
	h, s := hand{t: t, dir: m.Hub.Dir}, hand{t: t, dir: m.Spokes["attic"].Dir}
	g := newGate(t)
	done := h.spawn("--spoke", "attic", "--title", "first", "--", "sh", "-c", "echo out; echo err >&2; exit 3")
	h.ends(done)
	id := h.spawn("--spoke", "attic", "--title", "second", "--max-retries", "3", "--", "sh", "-c", "echo begun; "+g.wait()+"; echo never; sleep 600")
	h.runs(id)
	for name, test := range map[string]func(*testing.T, hand, string, string){"running": hostLooks, "waiting": hostSeesWhatWaits} {
		t.Run(name, func(t *testing.T) { test(t, hand{t: t, dir: s.dir}, done, id) })
	}
	following := s.begin("logs", "-f", id)
	following.reads("begun\n")

	s.do("kill", commands.ShortID(id), "--reason", "my machine", "--grace", "0s")

	v := h.ends(id)
	require.Equal(t, commands.Cancelled, v.State)
	require.Equal(t, commands.Operator, v.Reason)
	why := fmt.Sprintf("killed by the host of the spoke (uid:%d): my machine", os.Getuid())
	require.Equal(t, why, resultOf(v).Summary)
	require.Contains(t, h.do("status", id), why)
	require.Contains(t, h.do("why", id), why)
	require.Equal(t, 1, v.Attempt, "it is not tried again")
	require.Empty(t, following.end().out)
	require.Regexp(t, fmt.Sprintf(`(?m)uid:%d +task.kill +%s .* my machine$`, os.Getuid(), commands.ShortID(id)), s.do("audit", "list", "--object", id))
	require.Regexp(t, fmt.Sprintf(`(?m)^kill +ordered by uid:%d: my machine$`, os.Getuid()), s.do("status", id))
	require.Contains(t, s.do("why", id), fmt.Sprintf("a kill was ordered by uid:%d: my machine", os.Getuid()))
	s.refused(exitConflict, "has ended already: cancelled", "kill", id, "--reason", "again")
	refused := h.spawn("--spoke", "attic", "--capability", "gpu", "--", "echo", "refused")
	require.Equal(t, commands.Unavailable, h.ends(refused).State)
	requireLogLines(t, m.Spokes["attic"], done, id, refused)
	for _, verb := range []string{"status", "why", "logs"} {
		s.refused(exitNotFound, " audit list --object "+commands.ShortID(refused), verb, commands.ShortID(refused))
	}
	require.Contains(t, h.run("", "logs", refused).err, "agent "+commands.ShortID(refused)+" never started, so it wrote nothing: ")
	require.NotContains(t, h.run("", "logs", done).err, "never started")
	require.Contains(t, s.run("", "spokes").err+s.run("", "spokes").out, "this instance is a spoke; its hub lists its spokes")
	require.Contains(t, h.do("config", "show", "hub", "--", "--output-per-agent", "1048576"), "1MiB")

	require.NoError(t, m.Spokes["attic"].Stop(t.Context()))
	hostLooks(t, s, done, id)
	s.refused(exitUnreachable, "no instance runs in", "kill", id, "--reason", "x")
}

// hostLooks is what reads.
func hostLooks(t *testing.T, s hand, done, id string) {
	require.Regexp(t, `(?m)^ID +HUB +STATE .*\n`+commands.ShortID(id)+` +lab +\S+.* second\n`+commands.ShortID(done)+` +lab +failed: exit 3 .* first\n$`, s.do("agents"))
	var list []agentView
	s.read(&list, 0, "agents", "--hub", "lab", "--limit", "1")
	require.Len(t, list, 1)
	require.Equal(t, id, list[0].Task)
	s.refused(exitMisuse, "this instance is a spoke", "agents", "--spoke", "attic")
	require.Empty(t, strings.TrimSpace(s.do("-o", "name", "agents", "--hub", "elsewhere")))

	var v agentView
	s.read(&v, 0, "status", commands.ShortID(done))
	require.Equal(t, commands.Failed, v.State)
	require.Equal(t, 3, *v.ExitCode)
	require.Equal(t, "lab", v.Hub)
	require.Regexp(t, `(?m)^hub +lab$`, s.do("status", done))

	said := s.run("", "logs", done)
	require.Equal(t, "out\n", said.out)
	require.Equal(t, "err\n", said.err)
	var pieces []hostPiece
	s.read(&pieces, 0, "logs", done)
	require.Equal(t, []hostPiece{{Seq: 1, Attempt: 1, Stream: "stdout", Data: []byte("out\n")}, {Seq: 2, Attempt: 1, Stream: "stderr", Data: []byte("err\n")}}, pieces)
	require.Equal(t, "out\n", s.do("logs", "-f", done))
	require.Empty(t, s.do("logs", "-n", "0", done))
	s.refused(exitMisuse, "count what arrived at a hub", "logs", "--since", "1h", done)
	require.Contains(t, s.do("why", done), "it has failed: exit code 3")
	s.refused(exitNotFound, "no agent ffffffff", "status", "ffffffff")
}

func hostSeesWhatWaits(t *testing.T, s hand, _, id string) {
	require.Equal(t, "begun\n", s.do("logs", id))
	require.Equal(t, "it is running here, as attempt 1\n", s.do("why", id))
	require.Regexp(t, `(?m)^state +running$`, s.do("status", id))
	require.Equal(t, id, strings.TrimSpace(s.do("-o", "name", "agents", "--open")))
}

// requireLogLines checks that a spoke has one line for each order, refusal, start and end,
// and none that says what an agent was started with, or wrote.
func requireLogLines(t *testing.T, n *fleet.Process, done, killed, refused string) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(n.Dir, "log"))
	require.NoError(t, err)
	log := string(raw)
	for _, words := range []string{
		`msg="order taken" kind=agent.spawn id=` + done + ` connection=lab`, `msg="agent started" id=` + done + ` attempt=1`,
		`msg="agent ended" id=` + done + ` attempt=1 outcome=failed exit_code=3`, `msg="order taken" kind=agent.spawn id=` + killed + ` connection=lab`,
		`msg="agent started" id=` + killed, `msg="kill ordered by the host" id=` + killed, `msg="agent ended" id=` + killed + ` attempt=1 outcome=killed`,
		`level=INFO msg="order refused" kind=agent.spawn id=` + refused + ` connection=lab code=CAPABILITY`,
	} {
		require.Equal(t, 1, strings.Count(log, words), words)
	}
	for _, secret := range []string{"exit 3", "begun", "never", "echo", "my machine"} {
		require.NotContains(t, log, secret)
	}
}

// The host of a spoke reads what agents are called, also while no spoke runs.
func TestASpokesHostReadsTitles(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	h, s := hand{t: t, dir: m.Hub.Dir}, hand{t: t, dir: m.Spokes["attic"].Dir}
	id := h.spawn("--spoke", "attic", "--title", "nightly: 夜間", "--", "true")
	h.ends(id)
	untitled := h.spawn("--spoke", "attic", "--", "echo", "hi")
	h.ends(untitled)
	shows := func() {
		require.Regexp(t, `(?m)^\w+ +lab +completed +\S+ +echo hi\n\w+ +lab +completed +\S+ +nightly: 夜間$`, s.do("agents"))
		require.Regexp(t, `(?m)^title +nightly: 夜間$`, s.do("status", id))
		require.Contains(t, s.do("agents", "-o", "json"), `"title": "nightly: 夜間"`)
	}

	shows()
	require.NoError(t, m.Spokes["attic"].Stop(t.Context()))
	shows()
}
