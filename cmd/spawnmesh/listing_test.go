package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/fleet"
	"github.com/spawnmesh/spawnmesh/store"
)

func followOutput(t *testing.T, h hand) {
	g := newGate(t)
	job := h.begin("spawn", "--spoke", "attic", "--follow", "--", "sh", "-c", "echo one; "+g.wait()+"; echo two; echo odd >&2; exit 4")

	job.reads("one\n") // while it runs
	g.open(t)
	s := job.end()

	require.Equal(t, exitFailed, s.code)
	require.Equal(t, "two\n", s.out)
	require.Contains(t, s.err, "odd\n")
	require.Regexp(t, `agent \S+ failed: exit code 4\n$`, s.err)

	lines := strings.Split(strings.TrimSpace(h.run("", "-o", "json", "spawn", "--spoke", "attic", "--follow", "--", "echo", "hi").out), "\n")
	require.Len(t, lines, 2, "to a program: a piece of log, and the agent at its end")
	var piece hub.LogLine
	require.NoError(t, json.Unmarshal([]byte(lines[0]), &piece))
	require.Equal(t, "hi\n", string(piece.Data))
	var v hub.AgentView
	require.NoError(t, json.Unmarshal([]byte(lines[1]), &v))
	require.Equal(t, commands.Completed, v.State)
}

func showLogs(t *testing.T, h hand) {
	g := newGate(t)
	id := h.spawn("--spoke", "attic", "--", "sh", "-c", "echo one; "+g.wait()+"; echo two; echo odd >&2")
	job := h.begin("logs", id, "-f")
	job.reads("one\n")
	require.Equal(t, "one\n", h.do("logs", id), "what is there by now")
	var first []hub.LogLine
	h.read(&first, 0, "logs", id)
	require.Len(t, first, 1)
	g.open(t)

	s := job.end()

	require.Equal(t, said{"two\n", "odd\n", 0}, s)
	all := h.run("", "logs", commands.ShortID(id))
	require.Equal(t, said{"one\ntwo\n", "odd\n", 0}, all)
	rest := h.run("", "logs", id, "--since-seq", fmt.Sprint(first[0].Seq))
	require.Equal(t, said{"two\n", "odd\n", 0}, rest)
	require.Equal(t, rest, h.run("", "logs", "-f", "--since-seq", fmt.Sprint(first[0].Seq), id))
	var pieces []hub.LogLine
	h.read(&pieces, 0, "logs", id, "--since-seq", "1000000000")
	require.Equal(t, []hub.LogLine{}, pieces)
	lines := strings.Split(strings.TrimSpace(h.do("logs", "-o", "ndjson", id)), "\n")
	require.Len(t, lines, 3)
	require.Equal(t, "two\n", h.do("logs", "-n", "2", id, "--attempt", "1", "--since", "1h"))
	require.Equal(t, said{}, h.run("", "logs", "-f", "-n", "0", id))
	h.refused(exitMisuse, "agent "+commands.ShortID(id)+" has no attempt 2: its last one is 1", "logs", id, "--attempt", "2")
	h.refused(exitMisuse, "-n counts lines", "logs", id, "-n", "3", "-o", "json")
	h.refused(exitNotFound, "no agent", "logs", "ffffffff")
	h.refused(exitNotFound, "no agent", "logs", "-f", "ffffffff")
	h.refused(exitMisuse, "not a whole number", "logs", id, "--since-seq", "one")
}

func showStatus(t *testing.T, h hand) {
	g := newGate(t)
	id := h.spawn("--spoke", "attic", "--title", "the nightly run", "--", "sh", "-c", "seq 1 30; printf 'odd\\033[2J\n' >&2;"+g.wait())
	h.runs(id)
	h.shows(id, "\nodd·[2J\n")

	s := h.run("", "status", id, "--ask")

	require.Zero(t, s.code)
	require.Contains(t, s.err, "attic says now: running, attempt 1")
	for _, want := range []string{`(?m)^id +` + commands.ShortID(id) + ` \(` + id + `\)$`, `(?m)^title +the nightly run$`, `(?m)^state +running$`, `(?m)^ordered +.* by uid:\d+$`, `(?m)^receipt +\d\d:\d\d:\d\d\.\d{3} seq \d+  attic started it, attempt 1$`} {
		require.Regexp(t, want, s.out)
	}
	require.NotRegexp(t, `[ \t]\n`, s.out)
	require.Regexp(t, `(?s)\n\nlast lines\n22\n.*\n30\n.*odd|odd.*\n30\n$`, s.out)
	require.Contains(t, h.do("status", id, "-o", "wide"), "\nlast lines\n1\n")
	var v agentView
	h.read(&v, 0, "status", id, "--ask")
	require.Equal(t, api.TaskStateRunning, v.Asked.State)
	require.Equal(t, id, v.Asked.Task)
	require.Equal(t, commands.Running, v.State)
	g.open(t)
	h.ends(id)
	require.Regexp(t, `\nstdout \(its end, of 81 bytes\)\n21\n`, h.do("status", id))
	require.Regexp(t, `\nstdout\n1\n`, h.do("status", id, "-o", "wide"))
	require.Contains(t, h.do("audit", "list", "--object", id[:18]), "task.ordered")
	require.Contains(t, h.do("audit", "list", "--object", id, "-o", "ndjson"), `"action":"mirror.completed"`)
}

// shows waits until the status of an agent has words.
func (h hand) shows(id, words string) {
	h.t.Helper()
	require.NoError(h.t, fleet.Poll(h.t.Context(), time.Minute, "waiting for "+words, func() (bool, error) {
		return strings.Contains(h.do("status", id), words), nil
	}))
}

func prefixes(t *testing.T, h hand) {
	a, b := "0193a3c0-2222-7aaa-8bbb-77f4a4fefe0a", "0193a3c0-2222-7aaa-8bbb-77f4a4fefe0b"
	for i, id := range []string{a, b} {
		require.Equal(t, id, h.spawn("--spoke", "attic", "--id", id, "--title", fmt.Sprint("night ", i/2), "--", "true", strconv.Itoa(i)))
	}
	twin := h.spawn("--spoke", "attic", "--title", "one of its kind", "--", "true")
	for text, id := range map[string]string{strings.ToUpper(b): b, commands.ShortID(b): b, strings.ToUpper(commands.ShortID(a)): a, "one of its kind": twin, commands.ShortID(twin)[:6]: twin} {
		var v hub.AgentView
		h.read(&v, 0, "status", text)
		require.Equal(t, id, v.Task, text)
		require.Equal(t, commands.ShortID(id), v.ShortID)
	}

	both := " names several agents: " + commands.ShortID(b) + ` night 0 \(\w+ on attic\), ` + commands.ShortID(a) + ` night 0 \(\w+ on attic\)\n`
	require.Regexp(t, "0193a3c0-2222"+both, h.run("", "status", "0193a3c0-2222").err)
	require.Regexp(t, "night 0"+both, h.run("", "status", "night 0").err)
	h.refused(exitMisuse, "give one of these ids", "kill", commands.ShortID(a)[:5], "--reason", "x")
	like, _ := commands.NamedIDs("ma1n0000")
	prefix := h.spawn("--spoke", "attic", "--id", "0193a3c0-2222-7aaa-8bbb-77"+like.Low, "--", "true")
	h.spawn("--spoke", "attic", "--title", "main", "--", "true")
	h.refused(exitMisuse, "main names several agents: ma1n0000 (", "kill", "main", "--reason", "x")
	require.Contains(t, h.do("status", commands.ShortID(prefix)), prefix)
	for _, text := range []string{"0193a3c0", "abc", "../../etc/passwd", "0193a3c0%'--", "0193a3c0-2222-7aaa-8bbb-00000000000c"} {
		h.refused(exitNotFound, "no agent "+text, "status", text)
	}
}

func listAgents(t *testing.T, h hand) {
	g := newGate(t)
	ended := h.spawn("--spoke", "attic", "--", "sh", "-c", "printf 'a\nb'")
	h.ends(ended)
	open := h.spawn("--spoke", "attic", "--title", strings.Repeat("a long title ", 9), "--", "sh", "-c", g.wait())

	table, wide := h.do("agents"), h.do("agents", "-o", "wide")
	for _, text := range []string{table, wide} {
		requireAligned(t, text)
		require.NotRegexp(t, `[ \t]\n`, text)
		require.Contains(t, text, commands.ShortID(ended))
	}
	require.Contains(t, wide, open)
	require.Contains(t, wide, "FULL ID")
	require.Contains(t, table, `sh -c $'printf \047a\nb\047'`, "a row is one line")
	var list []store.Mirror
	h.read(&list, 0, "agents", "--limit", "1000")
	lines := strings.Split(strings.TrimSpace(h.do("agents", "-o", "ndjson")), "\n")
	for _, line := range lines {
		var m store.Mirror
		require.NoError(t, json.Unmarshal([]byte(line), &m))
	}
	names := h.do("agents", "-o", "name", "--open", "--spoke", "attic")
	require.Contains(t, names, open+"\n")
	require.NotContains(t, names, ended)
	for _, format := range []string{"table", "name", "json"} {
		two := h.run("", "agents", "--limit", "1", "--spoke", "attic", "-o", format)
		require.Zero(t, two.code)
		require.Equal(t, "there are more agents than these; see more with --limit N\n", two.err, format)
	}
	require.Empty(t, h.run("", "agents", "--limit", "1000").err)
	require.Len(t, strings.Split(strings.TrimSpace(h.do("agents", "--limit", "2", "-o", "name")), "\n"), 2)
	h.refused(exitMisuse, "take a number from 0", "events", "--since", "-1")
	h.refused(exitMisuse, "take a number from 0", "events", "-n", "-5")
	h.refused(exitMisuse, "take a number from 0", "logs", ended, "-n", "-5")
	h.refused(exitMisuse, "take a number from 0", "logs", ended, "--since-seq", "-1")
	none := h.run("", "agents", "--spoke", "nowhere")
	require.Equal(t, said{"", "no such agents; all of them: spawnmesh --data-dir " + h.dir + " agents\n", 0}, none)
	require.Equal(t, "[]\n", h.do("agents", "--spoke", "nowhere", "-o", "json"))
	require.Empty(t, h.do("agents", "--spoke", "nowhere", "-o", "ndjson"))
	h.refused(exitMisuse, "--limit is 1 or more", "agents", "--limit", "0")
	g.open(t)
	h.ends(open)
}

// requireAligned checks that each column begins under its heading: before it is
// a blank in every row, whether or not the row has anything there.
func requireAligned(t *testing.T, text string) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for at := range lines[0] {
		if at == 0 || lines[0][at] == ' ' || !strings.HasSuffix(lines[0][:at], "  ") {
			continue
		}
		for _, line := range lines[1:] {
			if runes := []rune(line); len(runes) > at {
				require.Equal(t, ' ', runes[at-1], "column at %d of %q", at, line)
			}
		}
	}
}
