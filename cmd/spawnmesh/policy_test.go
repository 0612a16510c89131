package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

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

	require.Equal(t, said{path + "\n", "a running spoke reads it when it is started again\n", 0}, first)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o644), info.Mode().Perm())
	again := policy("init")
	require.Equal(t, exitConflict, again.code)
	require.Contains(t, again.err, "replace it with --force")
	for line, want := range map[string]int{
		"test -- echo hi":                           0,
		"test echo --hi":                            0,
		"test --env CI=1 -- go test ./...":          0,
		"test --runtime noop":                       0,
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
	require.Equal(t, "allowed\n", policy("test", "--", "echo").out)
	require.JSONEq(t, `{"allowed":true}`, policy("test", "-o", "json", "--", "echo").out)
	var shown struct {
		Commands []string `json:"commands"`
		Limits   struct {
			Timeout string `json:"timeout"`
		} `json:"limits"`
	}
	require.NoError(t, json.Unmarshal([]byte(policy("show", "-o", "json").out), &shown))
	require.Equal(t, []string{"echo", "go test", "go vet"}, shown.Commands)
	require.Equal(t, "24h", shown.Limits.Timeout)
	require.Zero(t, policy("init", "--preset", "open", "--force").code)
	require.Zero(t, policy("test", "--", "rm", "-rf", "/").code)
	require.NoError(t, os.WriteFile(path, []byte("version: 1\ncommand: [echo]\n"), 0o644))
	wrong := policy("show")
	require.Equal(t, exitMisuse, wrong.code)
	require.Contains(t, wrong.err, path)
	require.Contains(t, wrong.err, "[2:1]")
}
