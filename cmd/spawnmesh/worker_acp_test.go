package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
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

// coding orders a coding agent of tests that does what the prompt says, and returns the file of what it was asked.
func (h hand) coding(prompt string, flags ...string) (id, asked string) {
	h.t.Helper()
	asked = filepath.Join(h.t.TempDir(), "asked")
	test, err := os.Executable()
	require.NoError(h.t, err)
	id = h.spawn(append(flags, "--spoke", "attic", "--", program, "worker", "acp", "--allow", "read", "--prompt", prompt, "--", test, acptest.Mode, "-load", "-state", asked)...)
	return id, asked
}

// was waits until the coding agent was asked something.
func (h hand) was(asked, what string) string {
	h.t.Helper()
	var raw []byte
	require.NoError(h.t, fleet.Poll(h.t.Context(), time.Minute, "waiting until the coding agent is asked "+what, func() (bool, error) {
		var err error
		raw, err = os.ReadFile(asked)
		return strings.Contains(string(raw), what), ignoreAbsent(err)
	}))
	return string(raw)
}

// shimOf is the process of the shim of an agent.
func shimOf(t *testing.T, id string) (pid int) {
	t.Helper()
	list, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	for _, path := range list {
		raw, _ := os.ReadFile(path)
		at, _ := os.Readlink(filepath.Join(filepath.Dir(path), "cwd"))
		if strings.Contains(string(raw), "\x00_shim\x00") && strings.Contains(at, id) {
			pid, err = strconv.Atoi(filepath.Base(filepath.Dir(path)))
			require.NoError(t, err)
		}
	}
	require.NotZero(t, pid)
	return pid
}

// A coding agent says its plan, asks whether it may do something, gets the answer of a person at the hub, though its spoke was killed meanwhile, and says
// what it has done.
func TestACodingAgentWorks(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	h := hand{t: t, dir: m.Hub.Dir}
	id, _ := h.coding("do plan 1 4\ndo may read notes\ndo may execute make deploy\ndo say all of it is deployed\ndo usage 10 20")
	h.until(id, func(v hub.AgentView) bool { return v.State == commands.AwaitingInput })
	q := strings.Fields(h.do("inbox"))[6]
	require.Regexp(t, `(?m)^options +Allow, Reject\ndefault +Reject\ntext +may the agent do this\? execute: make deploy\n\ndata:\n  \{\n    "of": "make deploy"\n  \}\n`, h.do("inbox", "show", q))
	h.until(id, func(hub.AgentView) bool { return strings.Contains(h.do("status", id), "1 of 4 steps (25%): step 2") })

	test, err := os.Executable()
	require.NoError(t, err)
	alone := h.spawn("--spoke", "attic", "--", program, "worker", "acp", "--ask-for", "1s", "--prompt", "do may execute rm", "--", test, acptest.Mode)
	require.Equal(t, commands.Completed, h.ends(alone).State)
	require.Regexp(t, `\[nobody has answered: execute: rm\]\nsession/request_permission: \{"outcome":\{"optionId":"no"`, h.do("logs", "-f", alone))

	m.Spokes["attic"].Kill()
	require.NoError(t, m.Spokes["attic"].Start(t.Context()))
	h.do("answer", q, "--option", "Allow")

	v := h.ends(id)
	require.Equal(t, []any{commands.Completed, 1}, []any{v.State, v.Attempt})
	out := h.do("logs", "-f", id)
	require.Equal(t, 2, strings.Count(out, `"optionId":"yes"`), out)
	require.Regexp(t, `agent says +done: .*all of it is deployed\ndata +\{"session":"s-work","stop_reason":"end_turn","usage":\{"used":10,"size":20,"cost":\{"amount":0\.5,"currency":"USD"\}\}\}\n`, h.do("result", id))
}

// What a person has answered is for one tool of one attempt: in a session that is taken up the agent asks the same again, and so does the person hear it again.
// An agent that does not want to know any more withdraws its question.
func TestACodingAgentIsNotAnsweredByAnOldWord(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	h := hand{t: t, dir: m.Hub.Dir}
	id, asked := h.coding("do may execute deploy\ndo hold\ndo say gone on", "--on-loss", "rerun", "--max-retries", "3", "--backoff", "1ms")
	question := func() string {
		t.Helper()
		h.until(id, func(v hub.AgentView) bool { return v.State == commands.AwaitingInput })
		return regexp.MustCompile(`(?m)^(\S+).* deploy`).FindStringSubmatch(h.do("inbox"))[1]
	}
	first := question()
	h.do("answer", first, "--option", "Allow")
	require.NoError(t, fleet.Poll(t.Context(), time.Minute, "waiting until the agent acts by it", func() (bool, error) {
		return strings.Contains(h.do("logs", id), `"optionId":"yes"`), nil
	}))

	require.NoError(t, syscall.Kill(shimOf(t, id), syscall.SIGKILL))

	h.was(asked, "session/load")
	second := question()
	require.NotEqual(t, first, second)
	h.do("answer", second, "--option", "Reject")
	require.Equal(t, commands.Completed, h.ends(id).State)
	require.Regexp(t, `(?s)"optionId":"yes".*"optionId":"no".*gone on`, h.do("logs", "-f", id))

	doubts, _ := h.coding("do doubt 1000 execute this\ndo doubt 1000 execute this\ndo say done")
	require.Equal(t, commands.Completed, h.ends(doubts).State)
	require.Equal(t, 2, strings.Count(h.do("logs", "-f", doubts), "doubted: jsonrpc2: code -32800 message: the request was cancelled"), "each was a question of its own")
	require.NotContains(t, h.do("inbox"), "this")
}

// A coding agent does the task of its order, by its prompt or on standard input. What a review wants changed it is told in the session that it takes up,
// and behind its task where it cannot.
func TestACodingAgentIsSentBack(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	h := hand{t: t, dir: m.Hub.Dir}
	test, err := os.Executable()
	require.NoError(t, err)
	task := filepath.Join(t.TempDir(), "task")
	require.NoError(t, os.WriteFile(task, []byte("do say draft\n"), 0o600))
	for _, tt := range []struct {
		by, can string
		drafts  int
	}{{"--prompt-file", "-load", 1}, {"--prompt-file", "-version=1", 2}, {"--stdin-file", "-load", 1}, {"--stdin-file", "-version=1", 2}} {
		id := h.spawn("--review", tt.by, task, "--spoke", "attic", "--", program, "worker", "acp", "--", test, acptest.Mode, tt.can)
		h.until(id, func(v hub.AgentView) bool { return v.State == commands.InReview })
		require.NoError(t, m.Ctl.Do(t.Context(), "POST", "/api/v1/tasks/"+id+"/review", api.ReviewRequest{Attempt: 1, Verdict: commands.RequestChanges, Message: "do say better"}, nil))
		h.until(id, func(v hub.AgentView) bool { return v.State == commands.InReview && v.Attempt == 2 })

		out := ""
		require.NoError(t, fleet.Poll(t.Context(), time.Minute, "waiting for its output", func() (bool, error) { // which goes its own way
			out = h.do("logs", id)
			return strings.Contains(out, "better\n"), nil
		}))
		require.Equal(t, []int{tt.drafts, 1}, []int{strings.Count(out, "draft\n"), strings.Count(out, "better\n")}, "%s %s: %s", tt.by, tt.can, out)
	}
}

// What a coding agent says while its spoke is away is told later, though it says nothing more and the adapter has lost patience meanwhile.
func TestACodingAgentIsHeardAfterItsSpokeWasAway(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	h := hand{t: t, dir: m.Hub.Dir}
	asked, test := filepath.Join(t.TempDir(), "asked"), ""
	test, err := os.Executable()
	require.NoError(t, err)
	id := h.spawn("--spoke", "attic", "--", program, "worker", "acp", "--patience", "1s", "--prompt", "do wait 1500\ndo plan 1 4\ndo hold", "--", test, acptest.Mode, "-state", asked)
	h.was(asked, "prompt ")
	m.Spokes["attic"].Kill()
	time.Sleep(4 * time.Second) // it has said its plan, and the patience of the adapter is over

	require.NoError(t, m.Spokes["attic"].Start(t.Context()))

	h.until(id, func(hub.AgentView) bool { return strings.Contains(h.do("status", id), "1 of 4 steps (25%): step 2") })
	h.do("kill", id, "--reason", "enough")
	h.ends(id)
}

// A kill cancels the turn of a coding agent before anything is ended by a signal. One whose attempt was lost goes on in its session.
func TestACodingAgentIsKilledAndGoesOn(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	h := hand{t: t, dir: m.Hub.Dir}
	killed, heard := h.coding("do hold")
	lost, asked := h.coding("do hold\ndo say gone on", "--on-loss", "rerun", "--max-retries", "3", "--backoff", "1ms")
	h.was(heard, "prompt ")
	h.was(asked, "prompt ")

	h.do("kill", killed, "--reason", "enough")
	require.NoError(t, syscall.Kill(shimOf(t, lost), syscall.SIGKILL))

	require.Equal(t, commands.Cancelled, h.ends(killed).State)
	require.Regexp(t, `session/cancel\nwas cancelled\nclosed\n$`, h.was(heard, "closed"))
	v := h.ends(lost)
	require.Equal(t, []any{commands.Completed, 2}, []any{v.State, v.Attempt}, "%s", v.Sentence())
	require.Regexp(t, `(?s)session/load\nsession/prompt\n.*Your work on this task was interrupted`, h.was(asked, "session/load"))
	require.Contains(t, h.do("logs", "-f", lost), "lost]\ngone on\n", "and not what was said before")
}

// readableAgent is the program of the coding agent of these tests, where every user may execute it.
func readableAgent(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "spawnmesh-agents-")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	test, err := os.Executable()
	require.NoError(t, err)
	raw, err := os.ReadFile(test)
	require.NoError(t, err)
	agent := filepath.Join(dir, "agent")
	require.NoError(t, os.WriteFile(agent, raw, 0o755))
	return agent
}

// At the level of isolation that the host has, the adapter is executed though its agent may read nothing beside it, and the coding agent from where
// the policy lets agents read.
func TestACodingAgentIsConfined(t *testing.T) {
	t.Parallel()
	m := startHub(t)
	withCluster(t, filepath.Join(m.Dir, "attic"))
	agent := readableAgent(t)
	dir := filepath.Dir(agent)
	require.NoError(t, m.AddSpoke(t.Context(), "attic", policy.Presets["open"]+"read_paths: ["+dir+"]\n", "--heartbeat", "1s"))
	h, s := hand{t: t, dir: m.Hub.Dir}, hand{t: t, dir: m.Spokes["attic"].Dir}
	keys := filepath.Join(m.Spokes["attic"].Dir, "keys")
	id := h.spawn("--spoke", "attic", "--isolation", "landlock", "--", program, "worker", "acp", "--allow", "*", "--prompt",
		"do run ls "+keys+"\ndo run ls "+filepath.Dir(program)+"\ndo may read notes\ndo say done", "--", agent, acptest.Mode)

	v := h.ends(id)

	out := h.do("logs", "-f", id)
	require.Equal(t, commands.Completed, v.State, "%s", out)
	require.Equal(t, 2, strings.Count(out, `{"exitCode":2},"output":"on denied\n"`), out)
	require.Regexp(t, `agent says +done: .* done\n`, h.do("result", id))
	worksByProfile(t, h, s, agent)
}

// worksByProfile has an order name a profile of the host, with its task as standard input.
func worksByProfile(t *testing.T, h, s hand, agent string) {
	ordered := h.run("do say hi", "spawn", "--any", "--profile", "tester", "--prompt-file", "-", "-o", "name")
	require.Equal(t, exitNoSpoke, ordered.code, "%s%s", ordered.out, ordered.err)
	require.Contains(t, h.ends(h.spawn("--spoke", "attic", "--", "profile:tester")).Sentence(), "there is no profile:tester on this spoke")
	s.refused(exitMisuse, `there is no preset "vi"`, "spoke", "profiles", "add", "vi")
	require.Contains(t, s.do("spoke", "profiles", "add", "acp", "--name", "tester"), "/profiles/tester.yaml\n")
	s.refused(exitConflict, "there is a profile already", "spoke", "profiles", "add", "shell", "--name", "tester")
	file := policy.ProfileFile(s.dir, "tester")
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	text := strings.Replace(string(raw), "[my-agent, --acp]", "["+agent+", "+acptest.Mode+"]", 1)
	require.NoError(t, os.WriteFile(file, []byte(text+"environment: [LD_DEBUG]\nenv: {TEST_KEY: k}\n"), 0o600))
	require.Contains(t, s.do("spoke", "policy", "reload"), " is in force, was ")
	require.Regexp(t, `(?m)^tester +acp +`+agent+` acp-agent$`, s.do("spoke", "profiles", "list"))
	require.Regexp(t, `(?m)^allow +read, search, think, edit$`, s.do("spoke", "profiles", "show", "tester"))
	require.Regexp(t, `(?m)^agent +test 7\nprotocol +1\nsessions +begin anew in each attempt\nlogged in +yes$`, s.do("spoke", "profiles", "test", "tester"))
	require.NoError(t, os.WriteFile(policy.ProfileFile(s.dir, "locked"), []byte("runtime: acp\ncommand: ["+agent+", "+acptest.Mode+", -auth]\n"), 0o600))
	s.refused(exitNoSpoke, "profile locked cannot work: the agent is not logged in on this host: please log in; Run test login in a terminal", "spoke", "profiles", "test", "locked")
	for name, want := range map[string]string{"path: /var/empty": "cannot work: starting sh: it is in none of the directories of PATH", "env: {TEST_KEY: of-the-profile}": ": of-the-profile ",
		"home: /of/the/profile": "/of/the/profile", "env_from_file: keys.env": ": of-the-file "} {
		require.NoError(t, os.WriteFile(filepath.Join(s.dir, "keys.env"), []byte("TEST_KEY=of-the-file\n"), 0o600))
		require.NoError(t, os.WriteFile(policy.ProfileFile(s.dir, "locked"), []byte("runtime: acp\ncommand: [sh, -c, 'echo $TEST_KEY $HOME >&2; exit 1']\n"+name+"\n"), 0o600))
		s.refused(exitNoSpoke, want, "spoke", "profiles", "test", "locked")
	}
	require.NoError(t, os.WriteFile(policy.ProfileFile(s.dir, "locked"), []byte("runtime: acp\ncommand: ["+agent+", "+acptest.Mode+", -auth]\nauth: login\n"), 0o600))
	require.Regexp(t, `(?m)^logged in +yes$`, s.do("spoke", "profiles", "test", "locked"))
	s.refused(exitNotFound, `there is no profile "none"`, "spoke", "profiles", "show", "none")
	h.until(h.spawn("--spoke", "attic", "--", "true"), func(hub.AgentView) bool { // until a heartbeat has told of it
		ordered = h.run("do may read notes\ndo run printenv TEST_KEY", "spawn", "--any", "--profile", "tester", "--stdin", "-o", "name")
		return ordered.code == 0
	})
	id := strings.TrimSpace(ordered.out)
	v := h.ends(id)
	out := h.do("logs", "-f", id)
	require.Equal(t, commands.Completed, v.State, "%s", out)
	require.Contains(t, out, `"optionId":"yes"`)
	require.Contains(t, out, `{"exitStatus":{"exitCode":0},"output":"k\n","truncated":false}`)
}
