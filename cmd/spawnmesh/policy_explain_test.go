package main

import (
	"encoding/json"
	"os"
	"path/filepath"
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
directories: [/srv/work]
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
	require.Regexp(t, "^allowed\nby line 4: echo \\* done\nstarts: /\\S+/echo\nfiles: its own directories, and the system.s as any user; under Landlock nothing else but", allowed.out)
	require.Contains(t, allowed.out, "runs in: /srv/work\nvariables of an order: none\nvariables of the host: TOKEN\nsecrets: "+filepath.Join(dir, "echo.env")+"\ntime: 1h0m0s\n")
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
	require.Regexp(t, `(?m)^policy, line 6 +sh -c \* is as good as a shell: it runs what its arguments say`, typed(t, "--data-dir", dir, "doctor").out)
	require.NotContains(t, allowed.out+refused.out+policy("-o", "json", "--", "echo", "x", "done").out, "hunter2")
}
