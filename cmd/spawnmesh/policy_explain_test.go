package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
)

const explained = `version: 1
runtimes: [exec]
commands:
  - run: echo * done
    env_from_file: echo.env
  - sh -c *
  - no-such-program
directories: [/srv/work]
environment: [SECRET]
limits: {timeout: 1h}
`

func TestExplainSaysWhatIsDecidedAndWhatItReaches(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	policy := func(args ...string) said {
		return typed(t, append([]string{"--data-dir", dir, "spoke", "policy", "explain"}, args...)...)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "policy.yaml"), []byte(explained), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "echo.env"), []byte("TOKEN=hunter2\n"), 0o600))

	allowed, refused, shell := policy("--", "echo", "x", "done"), policy("--", "echo", "x"), policy("--", "sh", "-c", "x")

	require.Zero(t, allowed.code, allowed.err)
	require.Regexp(t, "^allowed\nby line 4: echo \\* done\nstarts: /\\S+/echo\n"+unlooked+"files: its own directories, and the system.s as any user; under Landlock, if this host has it, nothing else but", allowed.out)
	require.Contains(t, allowed.out, "runs in: /srv/work\nvariables of an order: SECRET\nfiles and standard input of an order: none; inputs, fetched from its hub: none\nvariables of every agent: HOME, LANG, PATH, TMPDIR, SPAWNMESH_ATTEMPT, SPAWNMESH_MARKER, SPAWNMESH_SOCKET, SPAWNMESH_TASK, SPAWNMESH_TOKEN_FILE; SPAWNMESH_DEADLINE where its time is bounded, SPAWNMESH_CHECKPOINT where an attempt before has kept one, SPAWNMESH_SESSION where one has, SPAWNMESH_REVIEW where a review has sent it back, SPAWNMESH_REVIEW_FILE there, SPAWNMESH_PROMPT_FILE there and where its order has a prompt, SPAWNMESH_INPUTS where its order has files or inputs, TRACEPARENT where its order belongs to a trace\nvariables of the host: TOKEN\nsecrets: "+filepath.Join(dir, "echo.env")+"\ntime: 1h0m0s\n"+
		"other limits: 1024 open files, which it may raise, 64GiB of disk in 4000000 files, 16MiB kept of each output stream\n")
	require.NotContains(t, allowed.out, "shell")
	require.Zero(t, refused.code)
	require.Regexp(t, `(?s)^refused \(POLICY.*\): command "echo" is not allowed.*\nline 4, echo \* done: "done" has to follow\n`, refused.out)
	require.NotContains(t, refused.out, "files:", "what does not run reaches nothing")
	require.Contains(t, shell.out, "as good as a shell: ")
	var v explanation
	require.NoError(t, json.Unmarshal([]byte(policy("-o", "json", "--", "echo", "x", "done").out), &v))
	require.True(t, v.Allowed)
	require.Equal(t, 4, v.Line)
	require.Equal(t, []string{filepath.Join(dir, "echo.env")}, v.Reach.Secrets)
	v = explanation{}
	require.NoError(t, json.Unmarshal([]byte(policy("-o", "json", "--dir", "/etc", "--", "echo", "x", "done").out), &v))
	require.Equal(t, commands.BadPath, v.Code)
	require.Nil(t, v.Reach)
	require.Equal(t, exitMisuse, policy().code)
	for _, test := range []func(...string) said{policy, func(args ...string) said {
		return typed(t, append([]string{"--data-dir", dir, "spoke", "policy", "test"}, args...)...)
	}} {
		require.Regexp(t, "^allowed, but no-such-program cannot be started now: it is in none of the directories of PATH; .* PATH is /usr/local/sbin:", test("--", "no-such-program").out)
		require.Contains(t, test("--isolation", "user", "--", "echo", "x", "done").out, "; the order demands user\n")
		require.Regexp(t, "^allowed\n", test("--secret", "SECRET=@/nowhere", "--", "echo", "x", "done").out)
		require.Contains(t, fmt.Sprint(test("--secret-file", "OTHER", "--", "echo", "x", "done")), "environment variable OTHER is not allowed")
		require.Contains(t, test("--isolation", "gaol", "--", "echo", "x", "done").err, "--isolation gaol is not a level; write one of none, ")
	}
	require.Regexp(t, `(?m)^policy, line 6 +sh -c \* is as good as a shell: it runs what its arguments say`, typed(t, "--data-dir", dir, "doctor").out)
	require.NotContains(t, allowed.out+refused.out+policy("-o", "json", "--", "echo", "x", "done").out, "hunter2")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "policy.yaml"), []byte("version: 1\nruntimes: [exec]\ncommands: ['*']\n"), 0o600))
	require.Regexp(t, "^allowed, but ./here cannot be started now: it is relative to the directory that the agent runs in", policy("--", "./here").out)
}

// What is allowed does not start all the same where its user may not go: the directory that is closed is named.
func TestAClosedDirectoryIsSaidBeforeAnAgentStarts(t *testing.T) {
	t.Parallel()
	dir, shut := t.TempDir(), filepath.Join(fresh(t).dir, "shut")
	work := filepath.Join(shut, "work")
	require.NoError(t, os.MkdirAll(work, 0o755))
	require.NoError(t, os.Chmod(shut, 0o700))
	ask := func(isolation, verb string, args ...string) string {
		rules := "version: 1\nruntimes: [exec]\ncommands: ['*']\ndirectories: ['*']\nisolation: " + isolation + "\n"
		require.NoError(t, os.WriteFile(filepath.Join(dir, "policy.yaml"), []byte(rules), 0o600))
		s := typed(t, append([]string{"--data-dir", dir, "spoke", "policy", verb}, args...)...)
		require.Zero(t, s.code, s.err)
		return s.out
	}
	closed := "true cannot be started now: an agent with a user of its own may not enter " + shut + " (mode 0700), which leads to " + work + "; name a directory that is open to every user, or run: chmod o+x " + shut + "\n"

	for _, verb := range []string{"test", "explain"} {
		for _, level := range []string{"user", "user+landlock", "user+bubble"} {
			said := ask(level, verb, "--dir", work, "--", "true")
			require.Contains(t, said, closed)
			require.Regexp(t, "^allowed\n", ask(level, verb, "--dir", "/usr", "--", "true"))
		}
		require.Regexp(t, "^allowed\n", ask("landlock", verb, "--dir", work, "--", "true"), "it has the user of the spoke")
	}
	require.Contains(t, ask("user", "test", "-o", "json", "--dir", work, "--", "true"), `"missing": "an agent with a user of its own may not enter `+shut)
	reach := ask("user+landlock", "explain", "--", "true")
	require.Equal(t, 1, strings.Count(reach, " /usr/bin,")+strings.Count(reach, " /usr/bin\n"), reach)
}

// The host that tries a directory is told where its links lead, and that a file is none.
func TestWhereADirectoryLeadsIsSaid(t *testing.T) {
	t.Parallel()
	dir, top := t.TempDir(), t.TempDir()
	top, err := filepath.EvalSymlinks(top)
	require.NoError(t, err)
	area, private := filepath.Join(top, "area"), filepath.Join(top, "private")
	require.NoError(t, os.Mkdir(area, 0o700))
	require.NoError(t, os.Mkdir(private, 0o700))
	require.NoError(t, os.Symlink(private, filepath.Join(area, "out")))
	require.NoError(t, os.WriteFile(filepath.Join(area, "file"), nil, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "policy.yaml"), []byte("version: 1\nruntimes: [exec]\ncommands: [\"*\"]\ndirectories: ["+area+"]\n"), 0o600))
	for name, says := range map[string]string{"out": " leads to " + private + ", which is not allowed", "file": " is no directory"} {
		at := filepath.Join(area, name)

		tried := typed(t, "--data-dir", dir, "spoke", "policy", "test", "--dir", at, "--", "true")
		explained := typed(t, "--data-dir", dir, "spoke", "policy", "explain", "--dir", at, "--", "true")

		require.Equal(t, exitRefused, tried.code, tried.err)
		require.Contains(t, tried.err, at+says+"; ")
		require.Contains(t, explained.out, at+says+"\n")
	}
}
