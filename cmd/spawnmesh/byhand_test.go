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
		require.NoError(t, poll(t.Context(), startTime, line, func() (bool, error) {
			raw, err := os.ReadFile(log)
			return strings.Contains(string(raw), ready), err
		}))
	}

	background(lines[0], "hub is ready: link 127.0.0.1:")
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

// What goes wrong on the way to two instances, and what each says about it.
func TestInstancesByHand(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	h, s := hand{t: t, dir: m.hub.dir}, hand{t: t, dir: m.spokes["attic"].dir}
	fresh := func(t *testing.T) hand {
		dir, err := os.MkdirTemp("", "spawnmesh-hand-")
		require.NoError(t, err)
		t.Cleanup(func() { os.RemoveAll(dir) })
		require.NoError(t, os.Chmod(dir, 0o711))
		return hand{t: t, dir: dir}
	}

	t.Run("a directory has one instance", func(t *testing.T) {
		h.t, s.t = t, t
		h.refused(exitConflict, "in use by another running instance (pid ", "hub", "run", "--link", "127.0.0.1:0")
		s.refused(exitConflict, "in use by another running instance (pid ", "spoke", "run")
		s.refused(exitConflict, "stop that one", "hub", "run")
	})
	t.Run("a spoke that has not joined", func(t *testing.T) {
		fresh(t).refused(exitConflict, "has not joined a hub; run: spawnmesh spoke join", "spoke", "run")
	})
	t.Run("no instance at all", func(t *testing.T) {
		none := fresh(t)
		for _, args := range [][]string{{"agents"}, {"status", "ffffffff"}, {"logs", "-f", "ffffffff"}, {"kill", "ffffffff", "--reason", "x"}, {"spawn", "--", "true"}, {"connections", "list"}, {"audit", "list"}, {"invite", "--name", "x"}} {
			if args[0] == "logs" {
				continue // a follower waits for its hub
			}
			none.refused(exitUnreachable, "no instance runs in "+none.dir, args...)
		}
		got := none.run("", "-o", "json", "agents")
		requireErrorJSON(t, got.err, commands.Unreachable, "no instance runs in "+none.dir,
			"start it with: spawnmesh --data-dir "+none.dir+" hub run (or: spoke run), or name another --data-dir")
	})
	t.Run("a hub and a spoke are asked for different things", func(t *testing.T) {
		s.t = t
		s.refused(exitMisuse, "a hub and a spoke are asked for different things", "agents")
		s.refused(exitMisuse, "name the other one with --data-dir", "invite", "--name", "x")
	})
	t.Run("no Postgres on the host", func(t *testing.T) {
		none := fresh(t)
		none.env = []string{"SPAWNMESH_PG_BIN=" + none.dir, "PATH=/nowhere"}
		none.refused(exitUnreachable, none.dir+"/postgres", "hub", "run", "--link", "127.0.0.1:0")
		got := none.run("", "doctor")
		require.Equal(t, exitUnexpected, got.code)
		require.Regexp(t, `(?m)^postgres programs +WRONG: `, got.out)
	})
	t.Run("a link's address", func(t *testing.T) {
		link, err := os.ReadFile(filepath.Join(m.hub.dir, "ready"))
		require.NoError(t, err)
		taken, none := strings.TrimSpace(string(link)), fresh(t)
		none.refused(exitConflict, "something listens on "+taken, "hub", "run", "--link", taken)
		none.refused(exitMisuse, "missing port", "hub", "run", "--link", "127.0.0.1")
		none.refused(exitMisuse, "--link 192.0.2.1:0", "hub", "run", "--link", "192.0.2.1:0")
		require.NoDirExists(t, filepath.Join(none.dir, "pg"), "no database for nothing")
	})
	t.Run("a policy that others can write", func(t *testing.T) {
		loose := fresh(t)
		path := strings.TrimSpace(loose.do("spoke", "policy", "init", "--preset", "open"))
		require.NoError(t, os.Chmod(path, 0o666))
		for _, args := range [][]string{{"spoke", "run"}, {"spoke", "policy", "show"}, {"spoke", "policy", "test", "--", "true"}} {
			loose.refused(exitMisuse, "can be written by others; run: chmod 644 "+path, args...)
		}
		require.Regexp(t, `(?m)^policy +WRONG: .*chmod 644 `+path, loose.run("", "doctor").out)
	})
	t.Run("doctor", func(t *testing.T) {
		h.t, s.t = t, t
		require.Regexp(t, `(?m)^instance +hub, pid \d+$`, h.do("doctor"))
		require.Regexp(t, `(?m)^instance +spoke, pid \d+$`, s.do("doctor"))
		require.Regexp(t, `(?m)^link +ok$`, s.do("doctor"))
		require.Regexp(t, `(?m)^policy +any command may run here$`, s.do("doctor"))
		require.Contains(t, fresh(t).do("doctor"), "not running")
		var checks []struct {
			Name string `json:"name"`
			OK   bool   `json:"ok"`
		}
		h.read(&checks, 0, "doctor")
		require.Greater(t, len(checks), 6)
		for _, c := range checks {
			require.True(t, c.OK, c.Name)
		}
		require.NotRegexp(t, `[ \t]\n`, h.do("doctor"))
	})
	t.Run("its Postgres is killed", func(t *testing.T) {
		h.t, s.t = t, t
		killPostgres(t, h.dir)
		require.Equal(t, "hi\n", resultOf(h.ends(h.spawn("--spoke", "attic", "--", "echo", "hi"))).Stdout.Tail)
		killPostgres(t, s.dir)
		got := h.run("", "spawn", "--spoke", "attic", "--wait", "--", "echo", "hi")
		require.Equal(t, 0, got.code, "%s%s", got.out, got.err)
	})
	t.Run("a hub that restarts while somebody waits", func(t *testing.T) {
		h.t = t
		g := newGate(t)
		job := h.begin("spawn", "--spoke", "attic", "--follow", "--", "sh", "-c", "echo one; "+g.wait()+"; echo two")
		job.reads("one\n")
		require.NoError(t, m.hub.stop(t.Context()))
		g.open(t)
		require.NoError(t, m.hub.start(t.Context()))
		got := job.end()
		require.Equal(t, 0, got.code, "%s", got.err)
		require.Equal(t, "two\n", got.out)
		require.Contains(t, got.err, "the hub does not answer")
	})
	t.Run("a key that others can read", func(t *testing.T) {
		h.t = t
		require.NoError(t, m.hub.stop(t.Context()))
		path := filepath.Join(h.dir, "keys", "identity")
		require.NoError(t, os.Chmod(path, 0o644))
		h.refused(exitMisuse, "key file "+path+" is readable by others; run: chmod 600 "+path, "hub", "run", "--link", "127.0.0.1:0")
		require.Regexp(t, `(?m)^keys +WRONG: .*chmod 600 `+path, h.run("", "doctor").out)
		got := h.run("", "-o", "json", "hub", "run")
		require.Contains(t, got.err, `"code":"KEY_FILE"`)
		out, err := exec.Command("chmod", "600", path).CombinedOutput()
		require.NoError(t, err, "what was said helps: %s", out)
		require.NoError(t, m.hub.start(t.Context()))
	})
}
