package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/hub/api"
)

// An agent says how far it is, asks, and gets the answer of a person at the hub; people at both sides see all of it.
func TestAnAgentTalksByTheCommand(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	h, s := hand{t: t, dir: m.Hub.Dir}, hand{t: t, dir: m.Spokes["attic"].Dir}
	w := program + " worker "
	id := h.spawn("--spoke", "attic", "--title", "deployer", "--", "sh", "-c", "set -e; "+w+"start; "+w+"progress --current 1 --total 4 --unit steps --step planning; "+
		"echo diff >plan; got=$("+w+"ask 'deploy now?' --key deploy --option allow --option deny --deadline 1h --data plan); echo got $got; "+
		"again=$("+w+"ask 'deploy now?' --key deploy --option allow --option deny --data plan); echo again $again; "+w+"show -o json | grep -c '\"answer\": \"allow\"'; "+
		w+"ask 'anybody?' --deadline 1s || echo code $?; "+w+"progress || echo code $?; "+w+"ask 'when?' --deadline 40d 2>&1 || true")
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(h.run("", "status", id).out, h.run("", "logs", id))
		}
	})
	h.until(id, func(v hub.AgentView) bool { return v.State == commands.AwaitingInput })
	short := strings.Fields(h.do("inbox"))
	require.Regexp(t, `(?m)^ID +AGENT +ON +AGE +DEADLINE +QUESTION\n\S+ +`+commands.ShortID(id)+` +attic +\S+ +in \S+ +deploy now\?\n$`, h.do("inbox"))
	q := short[6]
	require.Regexp(t, `(?m)^options +allow, deny\ndefault +deny\ntext +deploy now\?\n\ndata:\n  diff\n`, h.do("inbox", "show", q))
	require.Regexp(t, `(?m)^\S+ +`+commands.ShortID(id)+` +here .* deploy now\?\n$`, s.do("inbox"))
	for _, at := range []hand{h, s} {
		said := regexp.MustCompile(`it asks: deploy now\?; if nobody answers, the answer is "deny" \(since .*, until .*\): .* answer ` + q + ` --option allow, or --option deny\n`)
		require.Regexp(t, said, at.do("why", id))
		require.Regexp(t, said, at.run("", "status", id).err)
		var w api.TaskWhy
		at.read(&w, 0, "why", id)
		require.Equal(t, api.WhyQuestion, w.Reasons[0].Code)
		require.Equal(t, "spawnmesh answer "+q+" --option allow, or --option deny", w.Reasons[0].Fix)
	}
	require.Regexp(t, `(?m)^progress +1 of 4 steps \(25%\): planning, `, s.do("status", id))
	h.until(id, func(hub.AgentView) bool {
		return strings.Contains(h.do("status", id), "1 of 4 steps (25%): planning, ")
	})
	require.Contains(t, h.do("api", "GET", "/tasks/"+id+"/progress"), `"percent":25`)
	require.Contains(t, s.do("api", "GET", "/tasks/"+id+"/progress"), `"percent":25`)
	h.refused(exitMisuse, `"perhaps" is not one of the options: allow, deny`, "answer", q, "perhaps")

	require.Equal(t, "question "+q+" is answered: allow\n", h.do("answer", q, "--option", "allow", "--reason", "looked at it"))

	v := h.ends(id)
	require.Equal(t, commands.Completed, v.State, "%s", h.do("logs", id))
	said := h.do("logs", id, "-f") // until all of it is there
	require.Contains(t, said, "got allow\nagain allow\n")
	require.Contains(t, said, "code 11\n")
	require.Contains(t, said, "code 2\n")
	require.Contains(t, said, "a question may wait for 1s to 30d, not 40d\n")
	require.Regexp(t, `(?m)^answer +allow\nanswered +.* by lab: uid:\d+\nreason +looked at it$`, s.do("inbox", "show", q))
	s.refused(exitConflict, "has answered", "answer", q, "deny")
	require.Equal(t, "", h.do("inbox", "-o", "name"))
	h.refused(exitMisuse, "this is not inside an agent", "worker", "show")
	h.refused(exitNotFound, "no question", "answer", "zzzzzzzz", "x")
	sayHowItEnds(t, h, w)
}

// sayHowItEnds has an agent keep something for its next attempt, withdraw a question and say why it fails, and as that
// attempt say what it has done. Another says that it is of no use to try again.
func sayHowItEnds(t *testing.T, h hand, w string) {
	first := "echo half >state; " + w + "heartbeat; " + w + "checkpoint state --session s-1; " + w + "ask 'which one?' --key which & " +
		"until " + w + "withdraw which; do sleep 0.1; done; wait $! || echo asked $?; " + w + "fail --reason 'the disk is full'; exit 1"
	next := "echo kept $(cat $SPAWNMESH_CHECKPOINT) $SPAWNMESH_SESSION; echo whole | " + w + "checkpoint -; echo '{\"n\": 3}' | " + w +
		"done --summary 'fixed 3 files' --data - --artifact kept=log; "
	tried := h.spawn("--max-retries", "1", "--backoff", "100ms", "--", "sh", "-c", "echo log >log; if [ $SPAWNMESH_ATTEMPT = 1 ]; then "+first+"; fi; set -e; "+next)
	final := h.spawn("--max-retries", "3", "--", "sh", "-c", w+"fail --reason 'the repository is empty' --no-retry; exit 3")
	v := h.ends(tried)
	require.Equal(t, []any{commands.Completed, 2}, []any{v.State, v.Attempt}, "%s", h.do("logs", tried))
	require.Contains(t, h.do("logs", tried, "-f"), "kept half s-1\n")
	require.Contains(t, h.do("logs", tried, "-f", "--attempt", "1"), "asked 11\n")
	require.Regexp(t, `agent says +done: fixed 3 files\nartifact +kept: log, 4 bytes, .*\ndata +\{"n": 3\}\n`, h.do("result", tried))
	v = h.ends(final)
	require.Equal(t, []any{commands.Failed, 1}, []any{v.State, v.Attempt})
	require.Regexp(t, `agent says +failed: the repository is empty\nnot retried +`, h.do("result", final))
}
