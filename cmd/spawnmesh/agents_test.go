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
	"github.com/spawnmesh/spawnmesh/internal/fleet"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// cellarPolicy is narrow: everything that it does not list must be refused.
const cellarPolicy = `version: 1
runtimes: [exec, noop]
commands: [echo ..., sh -c ..., pwd]
directories: [%s]
environment: [CI, GIT_SSH_COMMAND]
capabilities: [gpu]
isolation: none
allow_root_agents: true
`

// What an operator does all day, with the real program, on a hub with two
// spokes: attic lets everything run, cellar little and one at a time.
func TestAgentsByHand(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	allowed := t.TempDir()
	require.NoError(t, m.AddSpoke(t.Context(), "cellar", fmt.Sprintf(cellarPolicy, allowed), "--slots", "1", "--heartbeat", "1s"))
	at := func(t *testing.T) hand { return hand{t: t, dir: m.Hub.Dir} }
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
		"labels":                         showLabels,
		"agents by labels":               listByLabels,
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
			require.Regexp(t, `^(\w{8} on (attic|cellar): (it|has all of its \d slots) .*\n)*$`, s.err)
		})
	}
	h.t = t
	h.refused(exitNotFound, "see: spawnmesh --data-dir "+h.dir+" connections list", "spawn", "--spoke", "nowhere", "--", "echo")
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
		requireErrorJSON(t, s.err, commands.NotFound, "no agent ffffffff", "see: spawnmesh --data-dir "+h.dir+" agents")
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
	require.NoError(t, fleet.Poll(t.Context(), time.Minute, "waiting for the tree", func() (bool, error) { return processes(t, "sleep", marker) == 2, nil }))

	require.Contains(t, h.do("kill", id, "--reason", "wrong branch", "--grace", "200ms"), commands.ShortID(id))

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
	require.Regexp(t, `(?m)^kill +ordered by uid:\d+ at [-0-9: ]+: wrong branch$`, table)
	require.Regexp(t, `a kill was ordered by uid:\d+: wrong branch \([-0-9: ]+\)$`, strings.TrimSpace(h.do("why", id)))
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
	require.Contains(t, some.out, "the kill of agent "+commands.ShortID(id)+" is ordered")
	require.Contains(t, some.err, "no agent ffffffff")
	require.Equal(t, exitCancelled, job.end().code)
	again := h.run("", "-o", "json", "kill", id, "--reason", "x")
	require.Equal(t, exitConflict, again.code)
	requireErrorJSON(t, again.err, commands.Conflict, "agent "+commands.ShortID(id)+" has ended already: cancelled", "")
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
		require.NoError(t, fleet.Poll(t.Context(), time.Minute, "waiting for "+id, func() (bool, error) {
			return strings.Contains(h.run("", "-o", "json", "status", id).out, `"state": "running"`), nil
		}))
		if how == "--follow" {
			job.reads("up\n")
		}

		require.NoError(t, job.cmd.Process.Signal(syscall.SIGINT))

		s := job.end()
		require.Equal(t, exitInterrupted, s.code)
		require.Contains(t, s.err, "detached; agent "+commands.ShortID(id)+" goes on")
		require.Contains(t, s.err, "spawnmesh --data-dir "+h.dir+" status "+commands.ShortID(id))
		g.open(t)
		require.Equal(t, commands.Completed, h.ends(id).State)
	}
}

func orderTwice(t *testing.T, h hand) {
	key := "build-" + newID()
	order := []string{"--spoke", "attic", "--idempotency-key", key, "--", "echo", "once"}
	id := h.spawn(order...)

	again := h.run("", append([]string{"spawn"}, order...)...)

	require.Equal(t, said{commands.ShortID(id) + "\n", "this spawn was ordered before; nothing new was ordered\n", 0}, again)
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
	before := time.Now().Truncate(time.Second)
	until, err := time.Parse(time.RFC3339+"\n", out("--timeout", "1h", "--", "sh", "-c", `echo "$SPAWNMESH_DEADLINE"`))
	require.NoError(t, err)
	require.WithinRange(t, until, before.Add(time.Hour), time.Now().Add(time.Hour))
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
	id := h.spawn("--spoke", "attic", "--max-retries", "1", "--backoff", "1h", "--", "sh", "-c", "exit 7")

	v := h.until(id, func(v hub.AgentView) bool { return v.State == commands.Queued && v.Attempt == 1 })

	require.Nil(t, v.Result, "the first failure is not the end")
	got := h.run("", "status", id)
	require.Contains(t, got.err, "it waits for its next try")
	require.Regexp(t, `(?m)^last error +failed, try 1 at .*: exit code 7$`, got.out)
	require.Regexp(t, `(?m)^retries +at most 1, back-off from 1h$`, got.out)
	host := hand{t: t, dir: filepath.Join(filepath.Dir(h.dir), "attic")}
	require.Regexp(t, `(?m)^last error +failed, try 1 at .*: exit code 7$`, host.do("status", id))
	var card backlog.Task
	host.read(&card, 0, "backlog", "show", id)
	require.EqualValues(t, 3_600_000, card.BackoffMS, "it is the task's, on its spoke")
	require.Equal(t, "exit code 7", card.LastError.Text)
	h.do("kill", id, "--reason", "seen enough")
	require.Equal(t, commands.Cancelled, h.ends(id).State)
	h.refused(exitMisuse, "is outside 0..3600000", "spawn", "--backoff", "2h", "--spoke", "attic", "--", "true")
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
		require.Regexp(t, `it waits for (a free slot on cellar, which has 1|cellar to start it)`, h.run("", "status", id).err) // by its last heartbeat
	}

	g.open(t)

	for _, id := range ids {
		require.Equal(t, commands.Completed, h.ends(id).State)
	}
	raw, err := os.ReadFile(tr.path)
	require.NoError(t, err)
	require.Equal(t, "5\n0\n-5\n", string(raw))
}
