//go:build agents

// These tests need node and the packages of internal/acptest/peer: make test-agents installs them, and make test does not run these.

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/hub/api"
)

// agentPackages is where make test-agents installs them.
func agentPackages(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../../bin/agents")
	require.NoError(t, err)
	return dir
}

// A peerCase is one talk with a coding agent that is made with the SDK of the protocol: what it does is the JavaScript of its prompt.
type peerCase struct {
	name    string
	agent   []string // flags of it
	adapter []string // flags of worker acp
	order   []string // flags of spawn
	does    string
	then    func(t *testing.T, h hand, id, heard string) // what happens meanwhile
	state   commands.State
	attempt int      // 0 = the first
	shows   string   // that logs match
	result  string   // that result matches
	hears   []string // methods in their order, of all attempts; nil = any
}

const (
	oneFourOptions = `await may("execute", "rm", ["allow_always", "allow_once", "reject_always", "reject_once"])`
	allOfThem      = `await may("execute", "make", ["allow_once", "reject_once"]);
const path = process.cwd() + "/notes/of it";
await ask("fs/write_text_file", { path, content: "one\ntwo\nthree\n" });
await ask("fs/read_text_file", { path, line: 2, limit: 1 });
const { terminalId } = await ask("terminal/create", { command: "sleep", args: ["600"] });
for (const act of ["output", "kill", "wait_for_exit", "release"]) await ask("terminal/" + act, { terminalId });
await say("all of it");`
)

// personSays has a person choose an option of the question that an agent asks.
func personSays(option string) func(*testing.T, hand, string, string) {
	return func(t *testing.T, h hand, id, _ string) {
		h.until(id, func(v hub.AgentView) bool { return v.State == commands.AwaitingInput })
		var list []api.Question
		h.read(&list, 0, "inbox")
		for _, q := range list {
			if q.Task == id {
				h.do("answer", q.ID, "--option", option)
				return
			}
		}
		require.Fail(t, "it has asked nothing")
	}
}

// killedOnce has a person kill an agent once it was heard to say something.
func killedOnce(once string) func(*testing.T, hand, string, string) {
	return func(t *testing.T, h hand, id, heard string) {
		h.was(heard, once)
		h.do("kill", id, "--reason", "enough")
	}
}

func peerCases() []peerCase {
	lost := []string{"--on-loss", "rerun", "--max-retries", "5", "--backoff", "1ms"}
	list := []peerCase{
		{name: "a prompt with links", adapter: []string{"--input", "notes of it/50%/ü#1", "--input", "/etc/hostname"}, state: commands.Completed,
			does:  `for (const b of prompt.slice(1)) await say(b.type + " " + b.name + " " + b.uri + " " + decodeURIComponent(new URL(b.uri).pathname) + "\n");`,
			shows: `(?m)^resource_link ü#1 file:///\S+/notes%20of%20it/50%25/%C3%BC%231 /\S+/notes of it/50%/ü#1\nresource_link hostname file:///etc/hostname /etc/hostname$`,
			hears: []string{"initialize", "session/new", "session/prompt"}},
		{name: "nobody is logged in", agent: []string{"--auth"}, order: []string{"--max-retries", "3", "--backoff", "1ms"}, state: commands.Failed,
			result: `the agent is not logged in on this host: Authentication required: please log in; Log in in a terminal: peer login`, hears: []string{"initialize", "session/new"}},
		{name: "updates", state: commands.Completed,
			does: `await update({ sessionUpdate: "plan", entries: [{ content: "read it", priority: "high", status: "completed" }, { content: "mend it", priority: "low", status: "in_progress" }] });
await update({ sessionUpdate: "agent_thought_chunk", content: { type: "text", text: "hm, a thought" } });
await update({ sessionUpdate: "user_message_chunk", content: { type: "text", text: "a user" } });
await update({ sessionUpdate: "available_commands_update", availableCommands: [{ name: "test", description: "run", input: { hint: "which" } }] });
await update({ sessionUpdate: "current_mode_update", currentModeId: "code" });
await update({ sessionUpdate: "session_info_update", title: "Mend it" });
await update({ sessionUpdate: "config_option_update", configOptions: [] });
await update({ sessionUpdate: "tool_call", toolCallId: "t", title: "mend a", kind: "edit", status: "pending", locations: [{ path: "/a", line: 3 }], content: [{ type: "diff", path: "/a", oldText: "x", newText: "y" }], rawInput: { a: 1 } });
await update({ sessionUpdate: "tool_call_update", toolCallId: "t", status: "completed", content: [{ type: "content", content: { type: "text", text: "ok" } }], rawOutput: [1] });
await say("begun ", { messageId: "m1" }); await say("it.", { messageId: "m1" });
await say("It is ", { messageId: "m2" }); await say("mended.", { messageId: "m2" });
await update({ sessionUpdate: "agent_message_chunk", messageId: "m2", content: { type: "image", mimeType: "image/png", data: "aGk=" } });
await update({ sessionUpdate: "usage_update", used: 12, size: 200, cost: { amount: 0.25, currency: "EUR" } });`,
			shows:  `^\[plan: 1 of 2 done; mend it\]\n\[edit: mend a\] pending\n\[edit: mend a\] completed\nbegun it\.\nIt is mended\.\n$`,
			result: `agent says +done: It is mended\.\ndata +\{"session":"s-\d+","stop_reason":"end_turn","usage":\{"used":12,"size":200,"cost":\{"amount":0\.25,"currency":"EUR"\}\}\}`},
		{name: "allowed by a rule", adapter: []string{"--allow", "execute"}, does: oneFourOptions, state: commands.Completed, shows: `"optionId":"o-allow_once"`},
		{name: "allowed by a rule, for ever or not at all", adapter: []string{"--allow", "execute"}, does: `await may("execute", "rm", ["reject_always", "allow_always"])`, state: commands.Completed, shows: `"optionId":"o-allow_always"`},
		{name: "denied by a rule", adapter: []string{"--deny", "execute"}, does: oneFourOptions, state: commands.Completed, shows: `denied by the rules of this host: execute: rm\]\n.*"optionId":"o-reject_once"`},
		{name: "denied by a rule, for ever or not at all", adapter: []string{"--deny", "execute"}, does: `await may("execute", "rm", ["allow_always", "reject_always"])`, state: commands.Completed, shows: `"optionId":"o-reject_always"`},
		{name: "denied by a rule, without such an option", adapter: []string{"--deny", "execute"}, does: `await may("execute", "rm", ["allow_always"])`, state: commands.Completed, shows: `\{"outcome":\{"outcome":"cancelled"\}\}`},
		{name: "nobody answers", adapter: []string{"--ask-for", "1s"}, does: oneFourOptions, state: commands.Completed, shows: `nobody has answered: execute: rm\]\n.*"optionId":"o-reject_once"`},
		{name: "files", adapter: []string{"--allow", "*"}, state: commands.Completed,
			does: `const path = process.cwd() + "/a/b"; await ask("fs/write_text_file", { path, content: "one\ntwo\nthree\n" }); await ask("fs/read_text_file", { path });
await ask("fs/read_text_file", { path, line: 2, limit: 1 }); await ask("fs/read_text_file", { path: process.cwd() + "/none" }); await ask("fs/read_text_file", { path: "/etc/passwd" });
await ask("fs/write_text_file", { path: process.cwd() + "/../out", content: "" });`,
			shows: `fs/write_text_file: \{\}\nfs/read_text_file: \{"content":"one\\ntwo\\nthree\\n"\}\nfs/read_text_file: \{"content":"two\\n"\}\n` +
				`fs/read_text_file: error -32002 there is no file /\S+\nfs/read_text_file: error -32602 /etc/passwd is outside of the working directory .*\nfs/write_text_file: error -32602 .* is outside`},
		{name: "files that are denied", adapter: []string{"--deny", "read", "--deny", "edit"}, state: commands.Completed,
			does:  `const path = process.cwd() + "/a"; await ask("fs/write_text_file", { path, content: "" }); await ask("fs/read_text_file", { path });`,
			shows: `fs/write_text_file: error -32603 .*does not allow tools of the kind edit\nfs/read_text_file: error -32603 .*does not allow tools of the kind read`},
		{name: "a terminal", adapter: []string{"--allow", "*"}, state: commands.Completed,
			does: `const { terminalId } = await ask("terminal/create", { command: "sh", args: ["-c", "pwd; echo $X; echo 1234567890; exit 7"], cwd: process.cwd(), env: [{ name: "X", value: "y" }], outputByteLimit: 13 });
for (const act of ["wait_for_exit", "output", "kill", "release", "output"]) await ask("terminal/" + act, { terminalId });
await ask("terminal/create", { command: "no-such-program" });`,
			shows: `terminal/create: \{"terminalId":"t1"\}\nterminal/wait_for_exit: \{"exitCode":7\}\nterminal/output: \{"exitStatus":\{"exitCode":7\},"output":"y\\n1234567890\\n","truncated":true\}\n` +
				`terminal/kill: \{\}\nterminal/release: \{\}\nterminal/output: error -32002 there is no terminal "t1"\nterminal/create: error -32602 no-such-program`},
		{name: "a terminal that is ended", adapter: []string{"--allow", "*"}, state: commands.Completed,
			does: `const { terminalId } = await ask("terminal/create", { command: "sleep", args: ["600"] });
for (const act of ["output", "kill", "wait_for_exit", "output", "release"]) await ask("terminal/" + act, { terminalId });`,
			shows: `terminal/output: \{"output":"","truncated":false\}\nterminal/kill: \{\}\nterminal/wait_for_exit: \{"signal":"SIGKILL"\}\nterminal/output: \{"exitStatus":\{"signal":"SIGKILL"\},"output":"","truncated":false\}\nterminal/release: \{\}`},
		{name: "a kill", does: `note("works"); await cancelled; await say("stopped in order"); return "cancelled"`, then: killedOnce("\nworks\n"), state: commands.Cancelled,
			shows: `stopped in order`, hears: []string{"initialize", "session/new", "session/prompt", "session/cancel"}},
		{name: "a kill while it asks", does: `note("works"); const asked = ` + oneFourOptions + `; note("outcome " + JSON.stringify(asked)); return "cancelled"`, state: commands.Cancelled,
			then: func(t *testing.T, h hand, id, heard string) {
				h.until(id, func(v hub.AgentView) bool { return v.State == commands.AwaitingInput })
				killedOnce("\nworks\n")(t, h, id, heard)
				require.Contains(t, h.was(heard, "\noutcome "), `outcome {"outcome":{"outcome":"cancelled"}}`)
			}},
		{name: "a crash", does: `await say("half of it"); console.error("out of", "memory"); process.exit(3)`, state: commands.Failed, shows: `half of it\n`, result: `the agent ended with exit code 3 before it had answered session/prompt: out of memory`},
		{name: "a crash at the greeting", agent: []string{"--die-at", "initialize"}, state: commands.Failed, result: `before it had answered initialize: the agent has a defect`},
		{name: "an error", does: `throw new Error("the model is away")`, state: commands.Failed, result: `the agent answered session/prompt with an error: .*the model is away`},
		{name: "cut while people are asked", agent: []string{"--load", "--cut-at", "session/request_permission"}, does: oneFourOptions, order: lost, then: personSays("allow always"), state: commands.Completed, attempt: 2, shows: `"optionId":"o-allow_always"`},
		{name: "cut twice, and the session is gone on with", agent: []string{"--load", "--cut-at", "session/prompt,session/load"}, does: `await say(taken ? "gone on" : "anew")`, order: lost, state: commands.Completed, attempt: 3, shows: `(?m)^gone on$`,
			hears: []string{"initialize", "session/new", "session/prompt", "CUT", "initialize", "session/load", "CUT", "initialize", "session/load", "session/prompt"}},
		{name: "cut twice, and the session is resumed", agent: []string{"--resume", "--load", "--cut-at", "session/prompt,session/resume"}, does: `await say(taken ? "gone on" : "anew")`, order: lost, state: commands.Completed, attempt: 3, shows: `(?m)^gone on$`,
			hears: []string{"initialize", "session/new", "session/prompt", "CUT", "initialize", "session/resume", "CUT", "initialize", "session/resume", "session/prompt"}},
		{name: "cut, and there is no session to go on with", agent: []string{"--cut-at", "session/prompt"}, does: `await say(taken ? "gone on" : "anew")`, order: lost, state: commands.Completed, attempt: 2, shows: `(?m)^anew$`,
			hears: []string{"initialize", "session/new", "session/prompt", "CUT", "initialize", "session/new", "session/prompt"}},
	}
	for _, o := range []string{"allow always", "allow once", "reject always", "reject once"} {
		list = append(list, peerCase{name: "a person says " + o, does: oneFourOptions, then: personSays(o), state: commands.Completed, shows: `"optionId":"o-` + strings.ReplaceAll(o, " ", "_") + `"`})
	}
	for reason, words := range map[string]string{"end_turn": "agent says +done", "max_tokens": `used up its tokens \(max_tokens\)`, "max_turn_requests": `\(max_turn_requests\)`, "refusal": `refuses the task \(refusal\)`, "cancelled": "the turn was cancelled", "bored": `not known here: "bored"`} {
		state := commands.Failed
		if reason == "end_turn" {
			state = commands.Completed
		}
		list = append(list, peerCase{name: "stops: " + reason, does: `await say("as far as it goes"); return "` + reason + `"`, state: state, result: words})
	}
	for _, method := range []string{"initialize", "session/new", "session/prompt", "fs/write_text_file", "fs/read_text_file", "terminal/create", "terminal/output", "terminal/kill", "terminal/wait_for_exit", "terminal/release"} {
		list = append(list, peerCase{name: "cut at " + method, agent: []string{"--load", "--cut-at", method}, adapter: []string{"--allow", "*"}, does: allOfThem, order: lost, state: commands.Completed, attempt: 2, shows: `all of it\n$`})
	}
	return list
}

// A coding agent that is made with the SDK of the protocol is understood, and understands: what the hub sees of each talk, and that nothing which it is told
// is other than the schema of the SDK has it.
func TestAPeerOfTheProtocolIsUnderstood(t *testing.T) {
	m := startMesh(t)
	for _, c := range peerCases() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.check(t, hand{t: t, dir: m.Hub.Dir})
		})
	}
}

func (c peerCase) check(t *testing.T, h hand) {
	heard := filepath.Join(t.TempDir(), "heard")
	args := append(append([]string{"--spoke", "attic"}, c.order...), "--", program, "worker", "acp", "--prompt", "```js\n"+c.does+"\n```")
	args = append(append(args, c.adapter...), "--", "node", filepath.Join(agentPackages(t), "peer.mjs"), "--state", heard)
	id := h.spawn(append(args, c.agent...)...)
	if c.then != nil {
		c.then(t, h, id, heard)
	}
	v := h.ends(id)
	out := h.do("logs", "-f", id)
	require.Equal(t, []any{c.state, max(c.attempt, 1)}, []any{v.State, v.Attempt}, "%s\n%s", v.Sentence(), out)
	require.Regexp(t, c.shows, out)
	require.Regexp(t, c.result, h.run("", "result", id).out)
	raw, err := os.ReadFile(heard)
	require.NoError(t, err)
	require.NotContains(t, string(raw), "BROKEN")
	if c.hears != nil {
		methods := regexp.MustCompile(`(?m)^(initialize|session/\S+|CUT)`).FindAllString(string(raw), -1)
		require.Equal(t, c.hears, methods, "%s", raw)
	}
}
