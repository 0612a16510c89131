package main

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/fleet"
)

// byHand returns the first block of command lines below "By hand" in the README.
func byHand(t *testing.T) []string {
	t.Helper()
	raw, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(raw), "## By hand")
	require.True(t, found)
	_, block, _ := strings.Cut(rest, "```\n")
	block, _, _ = strings.Cut(block, "```")
	lines := strings.Split(strings.TrimSpace(block), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimSpace(regexp.MustCompile(` +# .*`).ReplaceAllString(line, ""))
	}
	return lines
}

// The six lines of the README, as they stand there, in a shell. Only the port is
// one that is free here.
func TestTheReadmeByHand(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "spawnmesh-readme-")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o711))
	lines := byHand(t)
	require.Len(t, lines, 6)
	shell := func(line string) *exec.Cmd {
		c := hand{t: t}.command(context.WithoutCancel(t.Context())) // instances end in order, with the test
		c.Path, c.Args = "/bin/sh", []string{"sh", "-c", "exec " + strings.ReplaceAll(line, "127.0.0.1:7422", "127.0.0.1:0")}
		c.Env = append(c.Env, "PATH="+filepath.Dir(program)+":"+os.Getenv("PATH"))
		c.Dir = dir
		return c
	}
	background := func(line, ready string) {
		log := filepath.Join(dir, strings.Fields(line)[2]+".log")
		f, err := os.Create(log)
		require.NoError(t, err)
		c := shell(line)
		c.Stdout, c.Stderr = f, f
		require.NoError(t, c.Start())
		require.NoError(t, f.Close())
		t.Cleanup(func() {
			require.NoError(t, c.Process.Signal(syscall.SIGTERM))
			require.NoError(t, c.Wait(), "an instance that is asked to stop ends well")
		})
		require.NoError(t, fleet.Poll(t.Context(), fleet.StartTime, line, func() (bool, error) {
			raw, err := os.ReadFile(log)
			return strings.Contains(string(raw), ready), err
		}))
	}

	background(lines[0], "hub is ready: link 127.0.0.1:")
	lines[3] = strings.Replace(lines[3], "spoke join", "spoke join --yes", 1) // nobody is at a terminal to agree
	for _, line := range lines[1:4] {
		out, err := shell(line).CombinedOutput()
		require.NoError(t, err, "%s: %s", line, out)
	}
	background(lines[4], "spoke is ready: 4 slots")
	out, err := shell(lines[5]).Output()

	exit, ended := err.(*exec.ExitError)
	require.True(t, ended, "%v", err)
	require.Equal(t, exitFailed, exit.ExitCode(), "%s", exit.Stderr)
	var v hub.AgentView
	require.NoError(t, json.Unmarshal(out, &v), "%s", out)
	require.Equal(t, commands.Failed, v.State)
	require.Equal(t, 3, *v.ExitCode)
	require.Equal(t, "hi\n", resultOf(v).Stdout.Tail)
	secret, err := os.ReadFile(filepath.Join(dir, "token"))
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(secret), "\n"), "a token is one line")
	for _, name := range []string{"H.log", "S.log"} {
		raw, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		_, tail, _ := strings.Cut(strings.TrimSpace(string(secret)), ".")
		_, tail, _ = strings.Cut(tail, ".")
		require.NotContains(t, string(raw), tail, "a token's secret is in no log")
	}
}
