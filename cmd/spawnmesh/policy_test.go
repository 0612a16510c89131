package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func policyFile(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(raw)
}

// unlooked is what is said of isolation where no spoke has looked at the host.
const unlooked = "isolation: not known, as no spoke runs here that has tried what this host holds; the strongest level that holds is taken\n"

// What the host sets is named and not shown, whichever way it is asked for.
func TestPolicyNamesWhatTheHostSets(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	policy := func(args ...string) said {
		return typed(t, append([]string{"--data-dir", dir, "spoke", "policy"}, args...)...)
	}
	rules := "version: 1\nruntimes: [exec]\ncommands:\n  - run: date\n    env_from_file: report.env\nenv: {REGION: hunter2-b}\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "policy.yaml"), []byte(rules), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "report.env"), []byte("TOKEN=hunter2-a\n"), 0o600))

	asked, show := policy("test", "--", "date"), policy("show")

	require.Equal(t, "allowed\nby line 4: date\n"+unlooked+"the host sets: REGION, TOKEN\n", asked.out)
	require.Contains(t, show.out, "REGION: (hidden)")
	require.Contains(t, show.out, "env_from_file: report.env")
	require.NotContains(t, show.out+asked.out+policy("show", "-o", "json").out+policy("test", "-o", "json", "--", "date").out, "hunter2")
	require.NoError(t, os.Chmod(filepath.Join(dir, "report.env"), 0o644))
	loose := policy("show")
	require.Equal(t, exitMisuse, loose.code)
	require.Contains(t, loose.err, "run: chmod 600 "+filepath.Join(dir, "report.env"))
}

func TestPolicyByHand(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new")
	policy := func(args ...string) said {
		return typed(t, append([]string{"--data-dir", dir, "spoke", "policy"}, args...)...)
	}
	path := filepath.Join(dir, "policy.yaml")
	require.Equal(t, exitRefused, policy("test", "--", "echo", "hi").code, "without a file nothing may run")
	require.Contains(t, policy("show").out, "runtimes: []")

	first := policy("init", "--preset", "commands")

	require.Equal(t, said{path + "\n", "a running spoke obeys it after: spawnmesh --data-dir " + dir + " spoke policy reload\n", 0}, first)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	again := policy("init")
	require.Equal(t, exitConflict, again.code)
	require.Contains(t, again.err, "replace it with --force")
	for line, want := range map[string]int{
		"test -- echo hi":                           0,
		"test echo --hi":                            0,
		"test -- date -u":                           0,
		"test --runtime noop":                       0,
		"test -- date":                              exitRefused,
		"test -- date -u -s noon":                   exitRefused,
		"test -- go test -exec sh":                  exitRefused,
		"test --env CI=1 -- echo":                   exitRefused,
		"test -- go run x.go":                       exitRefused,
		"test -- sh -c true":                        exitRefused,
		"test --env LD_PRELOAD=x -- echo":           exitRefused,
		"test --dir / -- echo":                      exitRefused,
		"test --capability gpu -- echo":             exitNoSpoke,
		"test --runtime docker -- echo":             exitMisuse,
		"test --env hunter2 -- echo":                exitMisuse,
		"test --capability two,words!? -- echo":     exitMisuse,
		"-o json test -- echo":                      0,
		"-o json test -- definitely-not-that-one x": exitRefused,
	} {
		s := policy(strings.Fields(line)...)
		require.Equal(t, want, s.code, "%s: %s", line, s.err)
		require.NotContains(t, s.err, "hunter2")
		if want != 0 {
			require.Empty(t, s.out, line)
		}
	}
	require.Equal(t, "allowed\nby line 21: echo **\n"+unlooked, policy("test", "--", "echo", "x").out)
	lines := strings.Split(policyFile(t, path), "\n")
	require.Equal(t, "  - echo **", lines[20])
	require.Equal(t, "allowed\n", policy("test", "--runtime", "noop").out)
	near := policy("test", "--", "date", "-u", "-s", "noon")
	require.Contains(t, near.err, "line 25, date -u: further arguments are not allowed, as it does not end in **")
	require.Contains(t, near.err, "entries of commands that name other programs: 7")
	require.Contains(t, policy("test", "--", "date").err, `line 25, date -u: "-u" has to follow`)
	require.Contains(t, policy("test", "--", "date", "-s").err, `line 25, date -u: argument 1 is "-s" and has to be "-u"`)
	var shown struct {
		Policy   string `json:"policy"`
		Commands []struct {
			Run []string `json:"run"`
		} `json:"commands"`
		Limits struct {
			Timeout string `json:"timeout"`
		} `json:"limits"`
	}
	require.NoError(t, json.Unmarshal([]byte(policy("show", "-o", "json").out), &shown))
	require.Equal(t, []string{"echo", "**"}, shown.Commands[0].Run)
	require.Contains(t, policy("show").out, "# policy "+shown.Policy+"; values of variables are not shown\n")
	require.JSONEq(t, `{"allowed":true,"policy":"`+shown.Policy+`","entry":"echo **","line":21}`, policy("test", "-o", "json", "--", "echo").out)
	require.Equal(t, "24h", shown.Limits.Timeout)
	require.Zero(t, policy("init", "--preset", "open", "--force").code)
	require.Zero(t, policy("test", "--", "rm", "-rf", "/").code)
	require.NoError(t, os.WriteFile(path, []byte("version: 1\ncommand: [echo]\n"), 0o644))
	wrong := policy("show")
	require.Equal(t, exitMisuse, wrong.code)
	require.Contains(t, wrong.err, path)
	require.Contains(t, wrong.err, "[2:1]")
}
