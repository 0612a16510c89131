package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/store"
)

// cellarPolicy is narrow: everything that it does not list must be refused.
const cellarPolicy = `version: 1
runtimes: [exec, noop]
commands: [echo, sh -c, pwd]
directories: [%s]
environment: [CI, GIT_SSH_COMMAND]
capabilities: [gpu]
`

// What an operator does all day, with the real program, on a hub with two
// spokes: attic lets everything run, cellar little and one at a time.
func TestAgentsByHand(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	allowed := t.TempDir()
	require.NoError(t, m.addSpoke(t.Context(), "cellar", fmt.Sprintf(cellarPolicy, allowed), "--slots", "1", "--heartbeat", "1s"))
	at := func(t *testing.T) hand { return hand{t: t, dir: m.hub.dir} }
	tests := map[string]func(*testing.T, hand){
		"the exit code tells the result": exitCodes,
		"results are JSON":               resultsAreJSON,
		"nothing of a tree is left":      killTree,
		"kills":                          kills,
		"an interrupt detaches":          detach,
		"output is followed":             followOutput,
		"logs":                           showLogs,
		"status":                         showStatus,
		"a prefix of an id":              prefixes,
		"a listing in every format":      listAgents,
		"an order given twice":           orderTwice,
		"what an agent is given":         func(t *testing.T, h hand) { agentGets(t, h, allowed) },
		"a failed run is tried again":    retries,
		"the hub chooses a spoke":        anySpoke,
		"the important comes first":      priorities,
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, at(t))
		})
	}
}

func exitCodes(t *testing.T, h hand) {
	tests := map[string]struct {
		args []string
		code int
		says string // in the table
	}{
		"success":                    {[]string{"--spoke", "attic", "--", "echo", "hi"}, 0, "completed"},
		"without dashes":             {[]string{"--spoke", "attic", "echo", "hi", "--wait"}, 0, "echo hi --wait"},
		"nothing started":            {[]string{"--spoke", "cellar", "--runtime", "noop"}, 0, "completed"},
		"failure":                    {[]string{"--spoke", "attic", "--", "sh", "-c", "exit 3"}, exitFailed, "exit code 3"},
		"a signal":                   {[]string{"--spoke", "attic", "--", "sh", "-c", "kill -9 $$"}, exitFailed, "SIGKILL"},
		"a timeout":                  {[]string{"--spoke", "attic", "--timeout", "300ms", "--", "sleep", "600"}, exitTimedOut, "timeout"},
		"a command not allowed":      {[]string{"--spoke", "cellar", "--", "rm", "-rf", "/"}, exitRefused, `command "rm" is not allowed`},
		"a program that is not here": {[]string{"--spoke", "attic", "--", "no-such-program"}, exitNoSpoke, "no-such-program"},
		"a capability it lacks":      {[]string{"--spoke", "attic", "--capability", "gpu", "--", "echo"}, exitNoSpoke, "gpu"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h.t = t
			s := h.run("", append([]string{"spawn", "--wait"}, tt.args...)...)

			require.Equal(t, tt.code, s.code, "%s%s", s.out, s.err)
			require.Contains(t, s.out, tt.says)
			require.Empty(t, s.err)
		})
	}
	h.t = t
	h.refused(exitNotFound, "see: spawnmesh connections list", "spawn", "--spoke", "nowhere", "--", "echo")
	h.refused(exitMisuse, "name one with --spoke", "spawn", "--", "echo")
	h.refused(exitMisuse, "put it after --", "spawn", "--spoke", "attic")
	h.refused(exitMisuse, "not both", "spawn", "--spoke", "attic", "--any", "--", "echo")
	h.refused(exitMisuse, "1s to", "spawn", "--spoke", "attic", "--expires-in", "8d", "--", "echo")
	h.refused(exitMisuse, "priority 101", "spawn", "--spoke", "attic", "--priority", "101", "--", "echo")
	h.refused(exitMisuse, "max retries -1", "spawn", "--spoke", "attic", "--max-retries", "-1", "--", "echo")
	h.refused(exitMisuse, "UUID", "spawn", "--spoke", "attic", "--id", "7", "--", "echo")
}

func resultsAreJSON(t *testing.T, h hand) {
	var v hub.AgentView
	h.read(&v, exitFailed, "spawn", "--spoke", "attic", "--wait", "--", "sh", "-c", "echo hi; exit 3")
	require.Equal(t, commands.Failed, v.State)
	require.Equal(t, 3, *v.ExitCode)
	require.Equal(t, "hi\n", resultOf(v).Stdout.Tail)

	var order hub.SpawnAnswer
	h.read(&order, 0, "spawn", "--spoke", "attic", "--", "echo", "hi")
	require.Equal(t, "attic", order.Spoke)
	require.Len(t, order.ID, 36)

	require.Equal(t, v.Task+"\n", h.run("", "-o", "name", "status", v.Task).out)
	for _, args := range [][]string{{"status", "ffffffff", "-o", "json"}, {"-o", "ndjson", "status", "ffffffff"}, {"status", "--json", "ffffffff"}} {
		s := h.run("", args...)
		require.Equal(t, exitNotFound, s.code)
		require.Empty(t, s.out)
		requireErrorJSON(t, s.err, commands.NotFound, "no agent ffffffff", "see: spawnmesh agents")
	}
}

// requireErrorJSON checks that text is one error as the product documents it.
func requireErrorJSON(t *testing.T, text string, code commands.Code, message, hint string) {
	t.Helper()
	var got map[string]map[string]string
	require.NoError(t, json.Unmarshal([]byte(text), &got), "%s", text)
	require.Equal(t, map[string]map[string]string{"error": {"code": string(code), "reason": string(code), "message": message, "hint": hint}}, got)
}

// An agent that ignores TERM and hides a child in another session is ended with
// all it started, and what had to be ended is in what its spoke signed.
func killTree(t *testing.T, h hand) {
	marker := fmt.Sprintf("600.%d%d", os.Getpid(), time.Now().UnixNano()%1000)
	id := h.spawn("--spoke", "attic", "--", "sh", "-c", `trap "" TERM; setsid sleep `+marker+` & sleep `+marker)
	require.NoError(t, poll(t.Context(), time.Minute, "waiting for the tree", func() (bool, error) { return processes(t, "sleep", marker) == 2, nil }))

	require.Contains(t, h.do("kill", id, "--reason", "wrong branch", "--grace", "200ms"), id)

	v := h.ends(id)
	require.Equal(t, commands.Cancelled, v.State)
	require.Equal(t, commands.KillRequested, v.Reason)
	require.Zero(t, processes(t, "sleep", marker))
	sleeps := 0
	for _, p := range resultOf(v).Reaped {
		if strings.Contains(p.Command, "sleep") {
			sleeps++
		}
	}
	require.Equal(t, 2, sleeps, "%v", resultOf(v).Reaped)
	require.Empty(t, resultOf(v).Survivors)
	var kinds []string
	for _, r := range v.Receipts {
		kinds = append(kinds, r.Kind)
	}
	require.Contains(t, kinds, string(commands.KilledKind))
	table := h.do("status", id)
	require.Regexp(t, `(?m)^reaped +\d+ .*sleep`, table)
	require.Regexp(t, `(?m)^kill +ordered by uid:\d+: wrong branch$`, table)
}

func kills(t *testing.T, h hand) {
	g := newGate(t)
	job := h.begin("spawn", "--spoke", "attic", "--follow", "--", "sh", "-c", "echo up; "+g.wait())
	job.reads("up\n")
	var list []store.Mirror
	h.read(&list, 0, "agents", "--open", "--spoke", "attic")
	var id string
	for _, m := range list {
		if strings.Contains(string(m.Spec), string(g)) {
			id = m.Task
		}
	}

	h.refused(exitMisuse, "--reason", "kill", id)
	h.refused(exitMisuse, "outside", "kill", id, "--reason", "x", "--grace", "11m")
	some := h.run("", "kill", "ffffffff", id, "--reason", "x", "--grace", "0s")

	require.Equal(t, exitNotFound, some.code, "one of two is not there")
	require.Contains(t, some.out, "the kill of agent "+id+" is ordered")
	require.Contains(t, some.err, "no agent ffffffff")
	require.Equal(t, exitCancelled, job.end().code)
	again := h.run("", "-o", "json", "kill", id, "--reason", "x")
	require.Equal(t, exitConflict, again.code)
	requireErrorJSON(t, again.err, commands.Conflict, "agent "+id+" has ended already: cancelled", "")
	require.NoError(t, json.Unmarshal([]byte(again.out), &list))
	require.Equal(t, commands.Cancelled, list[0].State)
}

// Who waits may leave: the agent goes on, and its end is there afterwards.
func detach(t *testing.T, h hand) {
	for _, how := range []string{"--wait", "--follow"} {
		g := newGate(t)
		id := newID()
		job := h.begin("spawn", "--spoke", "attic", "--id", id, how, "--", "sh", "-c", "echo up; "+g.wait())
		// The id is the hub's once the agent runs.
		require.NoError(t, poll(t.Context(), time.Minute, "waiting for "+id, func() (bool, error) {
			return strings.Contains(h.run("", "-o", "json", "status", id).out, `"state": "running"`), nil
		}))
		if how == "--follow" {
			job.reads("up\n")
		}

		require.NoError(t, job.cmd.Process.Signal(syscall.SIGINT))

		s := job.end()
		require.Equal(t, exitInterrupted, s.code)
		require.Contains(t, s.err, "detached; agent "+id+" goes on")
		require.Contains(t, s.err, "spawnmesh --data-dir "+h.dir+" status "+id)
		g.open(t)
		require.Equal(t, commands.Completed, h.ends(id).State)
	}
}

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
	var piece logPiece
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
	var first []logPiece
	h.read(&first, 0, "logs", id)
	require.Len(t, first, 1)
	g.open(t)

	s := job.end()

	require.Equal(t, said{"two\n", "odd\n", 0}, s)
	all := h.run("", "logs", id[:18])
	require.Equal(t, said{"one\ntwo\n", "odd\n", 0}, all)
	rest := h.run("", "logs", id, "--since-seq", fmt.Sprint(first[0].Seq))
	require.Equal(t, said{"two\n", "odd\n", 0}, rest)
	require.Equal(t, rest, h.run("", "logs", "-f", "--since-seq", fmt.Sprint(first[0].Seq), id))
	var pieces []logPiece
	h.read(&pieces, 0, "logs", id, "--since-seq", "1000000000")
	require.Equal(t, []logPiece{}, pieces)
	lines := strings.Split(strings.TrimSpace(h.do("logs", "-o", "ndjson", id)), "\n")
	require.Len(t, lines, 3)
	h.refused(exitNotFound, "no agent", "logs", "ffffffff")
	h.refused(exitNotFound, "no agent", "logs", "-f", "ffffffff")
	h.refused(exitMisuse, "not a whole number", "logs", id, "--since-seq", "one")
}

func showStatus(t *testing.T, h hand) {
	g := newGate(t)
	id := h.spawn("--spoke", "attic", "--title", "the nightly run", "--", "sh", "-c", g.wait())
	h.runs(id)

	s := h.run("", "status", id, "--ask")

	require.Zero(t, s.code)
	require.Contains(t, s.err, "attic says now: running, attempt 1")
	for _, want := range []string{`(?m)^id +` + id + `$`, `(?m)^title +the nightly run$`, `(?m)^state +running$`, `(?m)^ordered +.* by uid:\d+$`, `(?m)^receipt +agent.started +seq \d+ `} {
		require.Regexp(t, want, s.out)
	}
	require.NotRegexp(t, `[ \t]\n`, s.out)
	var v statusView
	h.read(&v, 0, "status", id, "--ask")
	require.Equal(t, commands.Running, v.Asked.State)
	require.Equal(t, id, v.Asked.Task)
	require.Equal(t, commands.Running, v.State)
	g.open(t)
	h.ends(id)
	require.Contains(t, h.do("audit", "list", "--object", id[:18]), "task.ordered")
	require.Contains(t, h.do("audit", "list", "--object", id, "-o", "ndjson"), `"action":"mirror.completed"`)
}

func prefixes(t *testing.T, h hand) {
	a, b := "0193a3c0-2222-7aaa-8bbb-00000000000a", "0193a3c0-2222-7aaa-8bbb-00000000000b"
	for _, id := range []string{a, b} {
		require.Equal(t, id, h.spawn("--spoke", "attic", "--id", id, "--", "true"))
	}
	var v hub.AgentView
	h.read(&v, 0, "status", strings.ToUpper(b))
	require.Equal(t, b, v.Task)

	h.refused(exitMisuse, "fits several agents", "status", "0193a3c0-2222")
	h.refused(exitMisuse, "use more of the id", "kill", "0193a3c0", "--reason", "x")
	h.refused(exitMisuse, "six or more", "status", "0193a")
	h.refused(exitMisuse, "six or more", "logs", "../../etc/passwd")
	h.refused(exitMisuse, "six or more", "status", "0193a3c0%'--")
	h.refused(exitNotFound, "no agent 0193a3c0-2222-7aaa-8bbb-00000000000c", "status", "0193a3c0-2222-7aaa-8bbb-00000000000c")
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
		require.Contains(t, text, ended[:18])
	}
	require.Contains(t, wide, open)
	require.Contains(t, wide, "FULL ID")
	require.Contains(t, table, `sh -c "printf 'a\nb'"`, "a row is one line")
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
	require.Len(t, strings.Split(strings.TrimSpace(h.do("agents", "--limit", "2", "-o", "name")), "\n"), 2)
	none := h.run("", "agents", "--spoke", "nowhere")
	require.Equal(t, said{"", "no such agents; all of them: spawnmesh --data-dir " + h.dir + " agents\n", 0}, none)
	require.Equal(t, "[]\n", h.do("agents", "--spoke", "nowhere", "-o", "json"))
	require.Empty(t, h.do("agents", "--spoke", "nowhere", "-o", "ndjson"))
	h.refused(exitMisuse, "from 1 to 10000", "agents", "--limit", "0")
	g.open(t)
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

func orderTwice(t *testing.T, h hand) {
	key := "build-" + newID()
	order := []string{"--spoke", "attic", "--idempotency-key", key, "--", "echo", "once"}
	id := h.spawn(order...)

	again := h.run("", append([]string{"spawn"}, order...)...)

	require.Equal(t, said{id + "\n", "this spawn was ordered before; nothing new was ordered\n", 0}, again)
	h.refused(exitConflict, "other content", "spawn", "--spoke", "attic", "--idempotency-key", key, "--", "echo", "twice")
	own := newID()
	for range 2 {
		require.Equal(t, own, h.spawn("--spoke", "attic", "--id", own, "--", "echo", "once"))
	}
	h.refused(exitConflict, own, "spawn", "--spoke", "attic", "--id", own, "--", "echo", "twice")
	waited := h.run("", append([]string{"spawn", "--wait", "-o", "name"}, order...)...)
	require.Equal(t, said{id + "\n", "", 0}, waited)
}

func agentGets(t *testing.T, h hand, allowed string) {
	deep := filepath.Join(allowed, "deep")
	require.NoError(t, os.MkdirAll(deep, 0o755))
	out := func(args ...string) string {
		s := h.run("", append([]string{"spawn", "--follow", "--spoke", "cellar"}, args...)...)
		require.Zero(t, s.code, "%s", s.err)
		return s.out
	}
	require.Equal(t, deep+"\n", out("--dir", deep, "--", "pwd"))
	require.Equal(t, "1=2 c\n", out("--env", "CI=1=2 c", "--", "sh", "-c", `echo "$CI"`))
	require.Equal(t, "ssh -v\n", out("--env", "GIT_SSH_COMMAND=ssh -v", "--", "sh", "-c", `echo "$GIT_SSH_COMMAND"`), "allowed by its full name")
	refused := map[string]struct {
		args []string
		says string
	}{
		"a directory elsewhere":       {[]string{"--spoke", "cellar", "--dir", "/", "--", "pwd"}, "directory / is not allowed"},
		"a way out of the directory":  {[]string{"--spoke", "cellar", "--dir", allowed + "/../..", "--", "pwd"}, "shortest form"},
		"a variable not listed":       {[]string{"--spoke", "cellar", "--env", "EDITOR=vi", "--", "pwd"}, "EDITOR"},
		"a dangerous one, never by *": {[]string{"--spoke", "attic", "--env", "LD_PRELOAD=/tmp/evil.so", "--", "true"}, "LD_PRELOAD"},
		"one of the spoke's own":      {[]string{"--spoke", "attic", "--env", "SPAWNMESH_ATTEMPT=x", "--", "true"}, "SPAWNMESH_ATTEMPT"},
	}
	for name, tt := range refused {
		s := h.run("", append([]string{"spawn", "--wait"}, tt.args...)...)
		require.Equal(t, exitRefused, s.code, "%s: %s%s", name, s.out, s.err)
		require.Regexp(t, `(?m)^state +was refused by \w+: .*`+tt.says, s.out, name)
		require.NotContains(t, s.out+s.err, "evil", "no value of the environment is told")
	}
	h.refused(exitMisuse, "NAME=VALUE", "spawn", "--spoke", "attic", "--env", "hunter2", "--", "true")
}

func retries(t *testing.T, h hand) {
	id := h.spawn("--spoke", "attic", "--max-retries", "1", "--", "false")

	v := h.until(id, func(v hub.AgentView) bool { return v.State == commands.Queued && v.Attempt == 1 })

	require.Nil(t, v.Result, "the first failure is not the end")
	h.do("kill", id, "--reason", "seen enough")
	require.Equal(t, commands.Cancelled, h.ends(id).State)
}

func anySpoke(t *testing.T, h hand) {
	var v hub.AgentView
	h.read(&v, 0, "spawn", "--any", "--capability", "gpu", "--wait", "--", "echo", "hi")
	require.Equal(t, "cellar", v.Spoke)

	h.refused(exitNoSpoke, "attic lacks gpu, tpu; cellar lacks tpu", "spawn", "--any", "--capability", "gpu", "--capability", "tpu", "--", "echo")
}

// With one slot, what waits starts by priority, not by age.
func priorities(t *testing.T, h hand) {
	g, tr := newGate(t), newTrace(t)
	first := h.spawn("--spoke", "cellar", "--", "sh", "-c", g.wait())
	h.runs(first)
	var ids []string
	for _, p := range []string{"-5", "0", "5"} {
		ids = append(ids, h.spawn("--spoke", "cellar", "--priority", p, "--", "sh", "-c", "echo "+p+" >> "+tr.path))
	}
	for _, id := range ids {
		h.until(id, func(v hub.AgentView) bool { return v.AcceptedAt != nil })
	}

	g.open(t)

	for _, id := range ids {
		require.Equal(t, commands.Completed, h.ends(id).State)
	}
	raw, err := os.ReadFile(tr.path)
	require.NoError(t, err)
	require.Equal(t, "5\n0\n-5\n", string(raw))
}
