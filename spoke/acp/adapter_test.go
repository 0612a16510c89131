package acp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/acptest"
	"github.com/spawnmesh/spawnmesh/spoke/acp"
)

func TestMain(m *testing.M) {
	acptest.Main()
	goleak.VerifyTestMain(m)
}

// A job is an attempt of the agent of tests.
type job struct {
	acp.Adapter
	out, err bytes.Buffer
	state    string
}

// newJob is one whose agent has flags and does what the prompt says.
func newJob(t *testing.T, prompt string, flags ...string) *job {
	t.Helper()
	j := &job{state: filepath.Join(t.TempDir(), "state")}
	j.Adapter = acp.Adapter{Argv: append([]string{os.Args[0], acptest.Mode, "-state", j.state}, flags...), Dir: t.TempDir(), Prompt: prompt, Attempt: 1,
		Begin: 5 * time.Second, Grace: time.Second, Stdout: &j.out, Stderr: &j.err}
	return j
}

// runs runs it and wants an exit code.
func (j *job) runs(t *testing.T, code int) (out string) {
	t.Helper()
	got := j.Run(t.Context())
	require.Equal(t, code, got, "%s\n%s", &j.out, &j.err)
	return j.out.String()
}

func (j *job) asked(t *testing.T) string {
	t.Helper()
	raw, err := os.ReadFile(j.state)
	require.NoError(t, err)
	return string(raw)
}

// A turn from its begin to its end: the transcript is plain lines.
func TestAnAgentDoesATask(t *testing.T) {
	j := newJob(t, "fix it\ndo say \\e[31mhello\ndo plan 1 3\ndo tool execute go test ./...\ndo odd\ndo usage 5 9\ndo say all is done")
	j.Inputs = []string{"/tmp/an input.txt"}

	out := j.runs(t, acp.Done)

	require.Equal(t, "[31mhello\n[plan: 1 of 3 done; step 2]\n[execute: go test ./...] in_progress\n[execute: go test ./...] completed\n[plan: 0 of 0 done; nothing is left]\n[x_future: without a name]\nall is done\n", out)
	asked := j.asked(t)
	require.Regexp(t, `^initialize\nsession/new\nsession/prompt\n`, asked)
	require.Contains(t, asked, `{"name":"an input.txt","type":"resource_link","uri":"file:///tmp/an%20input.txt"}`)
	require.Regexp(t, `closed\n$`, asked, "its input was closed, so that it could end by itself")
}

// Files and programs are those of the working directory.
func TestWhatIsDoneForAnAgentIsDoneInItsDirectory(t *testing.T) {
	j := newJob(t, "")
	outside := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(outside, []byte("s3cret"), 0o600))
	require.NoError(t, os.Symlink(outside, filepath.Join(j.Dir, "link")))
	require.NoError(t, os.Symlink(filepath.Dir(outside), filepath.Join(j.Dir, "dirlink")))
	require.NoError(t, os.WriteFile(filepath.Join(j.Dir, "lines"), []byte("1\n2\n3\n4\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(j.Dir, "bytes"), []byte{0xff}, 0o600))
	at := func(name string) string { return filepath.Join(j.Dir, name) }
	j.Prompt = strings.ReplaceAll(strings.Join([]string{"do read " + outside, "do read D/link", "do read D/dirlink/secret", "do read D/../x", "do read lines",
		"do read D/none", "do read D", "do read D/bytes", "do read D/lines 2 2", "do read D/lines 9 2", "do write D/new/file some text", "do write " + outside + " x", "do write D/dirlink/secret x",
		"do run sh -c printf%s$PWD; echo", "do run sh -c echo\t0123456789abcdef", "do run none", "do end", "do call x/unknown", "do call session/update"}, "\n"), "D/", j.Dir+"/")

	out := j.runs(t, acp.Done)

	require.NotContains(t, out, "s3cret")
	for _, want := range []string{
		`error jsonrpc2: code -32602 message: ` + outside + ` is outside of the working directory`,
		`link: path escapes from parent`, `dirlink/secret: path escapes from parent`, `"lines" is no absolute path`,
		`code -32002 message: there is no file ` + at("none"), `bytes is not UTF-8`, `fs/read_text_file: {"content":"2\n3\n"}`, `fs/read_text_file: {"content":""}`,
		`terminal/wait_for_exit: {"signal":"SIGKILL"}`, `code -32601 message: there is no method x/unknown here`, `code -32002 message: there is no terminal`,
	} {
		require.Contains(t, out, want)
	}
	raw, err := os.ReadFile(at("new/file"))
	require.NoError(t, err)
	require.Equal(t, "some text", string(raw))
	raw, err = os.ReadFile(outside)
	require.NoError(t, err)
	require.Equal(t, "s3cret", string(raw))
	j = newJob(t, "do line echo a | tr a b\ndo run sh -c exit${IFS}7\ndo run pwd\ndo run echo 0123456789abc\ndo run printenv X")
	out = j.runs(t, acp.Done)
	require.Contains(t, out, `{"exitStatus":{"exitCode":0},"output":"b\n","truncated":false}`)
	require.Contains(t, out, `terminal/wait_for_exit: {"exitCode":7}`)
	require.Contains(t, out, `{"exitStatus":{"exitCode":0},"output":"456789abc\n","truncated":true}`)
	require.Contains(t, out, `{"exitStatus":{"exitCode":0},"output":"y\n","truncated":false}`)
	require.Contains(t, out, filepath.Base(j.Dir)[len(filepath.Base(j.Dir))-3:]+`\n","truncated":true}`)
}

// The rules of the host come first, also for an agent that does not ask.
func TestRulesSayWhatAnAgentMay(t *testing.T) {
	j := newJob(t, "")
	j.Prompt = "do may read a\ndo may edit b\ndo may execute c\ndo may x_new d\ndo write " + j.Dir + "/x y\ndo run true"
	j.Rules = acp.Rules{Allow: []string{"read", "*"}, Deny: []string{"edit"}, Ask: []string{"execute"}}
	require.NoError(t, j.Rules.Check())
	require.ErrorContains(t, acp.Rules{Deny: []string{"eddit"}}.Check(), `"eddit" is no kind of tool`)

	out := j.runs(t, acp.Done)

	outcomes := regexp.MustCompile(`"optionId":"(\w+)"`).FindAllStringSubmatch(out, -1)
	var got []string
	for _, o := range outcomes {
		got = append(got, o[1])
	}
	require.Equal(t, []string{"yes", "no", "no", "yes"}, got, "%s", out)
	require.Contains(t, out, "fs/write_text_file: error")
	require.Contains(t, out, "this host does not allow tools of the kind edit")
	require.NoFileExists(t, filepath.Join(j.Dir, "x"))
	require.Contains(t, j.asked(t), "initialize")
}

// A session of an attempt before is taken up, or it is said that it is not.
func TestASessionIsTakenUp(t *testing.T) {
	before, err := json.Marshal(map[string]any{"version": 1, "said": "half of it works", "plan": []string{"[completed] read", "[pending] write"}})
	require.NoError(t, err)
	for _, tt := range []struct {
		name, session, method, out, words string
		flags                             []string
	}{
		{"by resume", "s-1", "session/resume", "", "was interrupted", []string{"-resume", "-load"}},
		{"by load", "s-1", "session/load", "", "was interrupted", []string{"-load"}},
		{"that is gone", "gone", "session/load\nsession/new", "[the session gone of the attempt before is not taken up, a new one is begun: no such session]\n", "half of it works", []string{"-load"}},
		{"by an agent that cannot", "s-1", "session/new", "[the session s-1 of the attempt before is not taken up, a new one is begun: it cannot take up sessions]\n", "[pending] write", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			j := newJob(t, "do say hello", tt.flags...)
			j.Session, j.Attempt, j.Before = tt.session, 2, before

			out := j.runs(t, acp.Done)

			require.Equal(t, tt.out+"hello\n", out, "what was said before is not said again")
			require.Contains(t, j.asked(t), "initialize\n"+tt.method+"\nsession/prompt\n")
			require.Contains(t, j.asked(t), tt.words)
		})
	}
}

// What a review wants changed is all that is said in a session that is taken up; in a new one the task is said before it.
func TestAReviewIsHeard(t *testing.T) {
	for name, told := range map[string]string{"-load": "do say better", "-auth=false": commands.Rework("do say hello", "do say better")} {
		j := newJob(t, "do say hello", name)
		j.Session, j.Attempt, j.Changes = "s-1", 2, "do say better"

		out := j.runs(t, acp.Done)

		require.Contains(t, out, "better\n")
		require.Equal(t, name != "-load", strings.Contains(out, "hello\n"), out)
		quoted, err := json.Marshal(told)
		require.NoError(t, err)
		require.Contains(t, j.asked(t), string(quoted))
		require.NotContains(t, j.asked(t), "interrupted")
	}
}

// Where the agent wants to be logged in to it is, once, by the method that the host has named. A session that it does not give without is left for a new one.
func TestAnAgentIsLoggedInTo(t *testing.T) {
	for _, tt := range []struct {
		name, auth, session, asked, says string
		code                             int
		flags                            []string
	}{
		{"new", "login", "", "session/new\nauthenticate\nsession/new\nsession/prompt\n", "hello\n", acp.Done, []string{"-auth"}},
		{"loaded", "login", "s-1", "session/load\nauthenticate\nsession/load\nsession/prompt\n", "hello\n", acp.Done, []string{"-load", "-auth-at", "session/load"}},
		{"in another way", "x", "", "session/new\nauthenticate\nclosed\n", `is not logged in on this host: logging in by "x": no such way (-32602); Run test login`, acp.Unavailable, []string{"-auth"}},
		{"not loaded", "", "s-1", "session/load\nsession/new\nsession/prompt\n", "a new one is begun: please log in]\nhello\n", acp.Done, []string{"-load", "-auth-at", "session/load"}},
		{"not resumed", "", "s-1", "session/resume\nsession/new\nclosed\n", "is not logged in on this host: please log in;", acp.Unavailable, []string{"-resume", "-auth-at", "session/resume", "-auth"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			j := newJob(t, "do say hello", tt.flags...)
			j.Auth, j.Session = tt.auth, tt.session

			require.Contains(t, j.runs(t, tt.code), tt.says)

			require.Contains(t, regexp.MustCompile(`(?m)^prompt .*\n`).ReplaceAllString(j.asked(t), ""), tt.asked)
		})
	}
}

// A test of an agent leaves nothing behind that the agent has started, and has the environment that it is given.
func TestAProbeEndsWhatItBegan(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	j := newJob(t, "", "-busy", file)

	report, problem := j.Probe(t.Context())

	require.Empty(t, problem)
	require.True(t, report.LoggedIn)
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return syscall.Kill(pid, 0) != nil }, 5*time.Second, 10*time.Millisecond)
	j.Argv, j.Env = []string{"sh", "-c", "echo $HOME >&2; exit 1"}, []string{"HOME=/of/the/profile"}
	_, problem = j.Probe(t.Context())
	require.Contains(t, problem, ": /of/the/profile")
}

// However an agent ends its turn, or does not, the exit code and the last line say it.
func TestHowATurnEnds(t *testing.T) {
	limit := []*regexp.Regexp{regexp.MustCompile(`(?i)usage limit`)}
	for _, tt := range []struct {
		name, prompt string
		flags        []string
		code         int
		says         string
	}{
		{"tokens", "do stop max_tokens", nil, acp.Failed, "[the agent has stopped: it has used up its tokens (max_tokens)]"},
		{"requests", "do stop max_turn_requests", nil, acp.Failed, "(max_turn_requests)]"},
		{"refusal", "do stop refusal", nil, acp.Failed, "[the agent refuses the task (refusal)]"},
		{"unknown reason", "do stop x_future", nil, acp.Failed, `for a reason that is not known here: "x_future"]`},
		{"cancelled", "do stop cancelled", nil, acp.Cancelled, "[the turn was cancelled]"},
		{"an error", "", []string{"-error-at", "session/prompt=model not found"}, acp.Failed, "[the agent answered session/prompt with an error: model not found (-32603)]"},
		{"a limit", "", []string{"-error-at", "session/prompt=Usage limit reached"}, acp.Limited, "Usage limit reached (-32603)]"},
		{"a limit on stderr", "do stderr usage limit\ndo exit 1", nil, acp.Limited, "ended with exit code 1 before it had answered session/prompt: usage limit]"},
		{"exit code 75", "do stderr come later\ndo exit 75", nil, acp.Limited, "[the agent has met a limit: come later]"},
		{"writes of a limit", "do say next I add the usage limit\ndo stop max_tokens", nil, acp.Failed, "(max_tokens)]"},
		{"writes of a limit and dies", "do say next I add the usage limit\ndo exit 3", nil, acp.Odd, "ended with exit code 3"},
		{"dies", "do exit 3", nil, acp.Odd, "[the agent ended with exit code 3 before it had answered session/prompt]"},
		{"closes its output", "do close", []string{"-deaf"}, acp.Odd, "[the agent has closed its output before it had answered session/prompt]"},
		{"not logged in", "", []string{"-auth"}, acp.Unavailable, "[the agent is not logged in on this host: please log in; Run test login in a terminal]"},
		{"version", "", []string{"-version", "2"}, acp.Unavailable, "[the agent does not speak version 1 of the protocol: it speaks 2]"},
		{"a few lines first", "do say hello", []string{"-rubbish", "3"}, acp.Done, "[the agent sent a line that is no message: need to install the following packages 2]"},
		{"rubbish", "do rubbish 200", nil, acp.Odd, "[the agent does not speak the protocol: a line that is no message: "},
		{"answers twice", "do twice", nil, acp.Done, ""},
		{"answers what nobody asked", "do stray\ndo wait 100", nil, acp.Done, "[the agent sent an answer that nobody waits for #4711"},
		{"a large update", "do large 9 update\ndo say hello", nil, acp.Done, "[an update of more than 8 MiB is left out]\nhello\n"},
		{"a large request", "do large 9", nil, acp.Odd, "[the agent sent a message of more than 8 MiB]"},
		{"many requests", "do spawn 600\ndo flood 100\ndo wait 300", nil, acp.Done, "64 requests are under way already"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			j := newJob(t, tt.prompt, tt.flags...)
			j.Limits = limit
			require.Contains(t, j.runs(t, tt.code), tt.says)
		})
	}
	for _, method := range []string{"initialize", "session/new", "session/prompt", "session/load"} {
		for flag, tt := range map[string]struct {
			code int
			says string
		}{
			"-die-at":   {acp.Odd, "[the agent ended with exit code 3 before it had answered " + method + ": the agent has a defect]"},
			"-wrong-at": {acp.Odd, ""},
			"-hang-at":  {acp.Odd, "[the agent has not answered " + method + " in 1s]"},
		} {
			if flag == "-hang-at" && method == "session/prompt" {
				continue // a turn may take as long as the attempt
			}
			t.Run(method+flag, func(t *testing.T) {
				t.Parallel()
				j := newJob(t, "do say hello", flag, method)
				if j.Begin = time.Second; method == "session/load" {
					j.Session, j.Argv = "s-1", append(j.Argv, "-load")
				}
				if flag == "-wrong-at" {
					j.Run(t.Context()) // without a panic
					return
				}
				require.Contains(t, j.runs(t, tt.code), tt.says)
			})
		}
	}
	j := newJob(t, "")
	j.Argv = []string{"/no/such/agent"}
	require.Contains(t, j.runs(t, acp.Unavailable), "[the agent /no/such/agent cannot be started: ")
}

// An agent that is to end hears session/cancel first, and may end its turn; one that does not listen is ended all the same.
func TestAnAgentIsCancelled(t *testing.T) {
	for _, flags := range [][]string{nil, {"-deaf"}, {"-stubborn"}} {
		j := newJob(t, "", flags...)
		j.Prompt = "do say begun\ndo wait 60000\ndo may read a\ndo write " + j.Dir + "/x y\ndo line touch z\ndo say done"
		j.Rules.Allow = []string{"*"}
		ctx, stop := context.WithCancel(t.Context())
		go func() {
			defer stop()
			for range 500 {
				if raw, _ := os.ReadFile(j.state); bytes.Contains(raw, []byte("prompt ")) {
					return
				}
				time.Sleep(10 * time.Millisecond)
			}
		}()
		began := time.Now()

		code := j.Run(ctx)

		require.Equal(t, acp.Cancelled, code)
		require.Less(t, time.Since(began), 15*time.Second)
		require.Contains(t, j.asked(t), "\nsession/cancel\n")
		require.Equal(t, !slices.Contains(flags, "-deaf"), strings.Contains(j.asked(t), "was cancelled"))
		if slices.Contains(flags, "-stubborn") {
			out := j.out.String()
			require.Contains(t, out, `session/request_permission: {"outcome":{"outcome":"cancelled"}}`)
			require.Equal(t, 2, strings.Count(out, "the turn is cancelled: end it"), "%s", out)
			require.Regexp(t, `done\n\[the turn was cancelled\]\n$`, out)
			left, err := os.ReadDir(j.Dir)
			require.NoError(t, err)
			require.Empty(t, left)
		}
	}
}
