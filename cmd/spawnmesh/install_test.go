package main

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// settingsIn returns the settings of a unit by their keys; none is there twice.
func settingsIn(t *testing.T, text string) map[string]string {
	t.Helper()
	settings := map[string]string{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || line[0] == '[' {
			continue
		}
		key, value, found := strings.Cut(line, "=")
		require.True(t, found, line)
		require.NotContains(t, settings, key)
		settings[key] = value
	}
	return settings
}

// With another KillMode a restart of the unit ends every agent.
func TestTheUnitOfASpokeLeavesItsAgentsAlone(t *testing.T) {
	t.Parallel()
	for _, u := range []unit{{Role: "spoke", Agents: true, User: "root"}, {Role: "spoke", Agents: true}, {Role: "hub", Agents: true, User: "root"}} {
		got := settingsIn(t, u.String())

		require.Equal(t, "process", got["KillMode"])
		require.Equal(t, "yes", got["Delegate"], "limits of agents are cgroups of the unit")
		require.Equal(t, "spoke", got["DelegateSubgroup"], "a group with groups below it has no processes")
		require.Equal(t, "continue", got["OOMPolicy"])
		for _, hides := range []string{"ProtectSystem", "ProtectHome", "PrivateTmp", "PrivateDevices", "CapabilityBoundingSet", "RestrictAddressFamilies", "ProtectControlGroups"} {
			require.NotContains(t, got, hides, "agents live in the unit, too")
		}
	}
}

// units are all kinds that install writes, with a path that has to be quoted.
func units() map[string]unit {
	const program, dir = "/bin/sh", "/srv/100% of $it; \"here\""
	of := func(role, user string, agents bool) unit {
		return unit{Role: role, Program: program, Dir: dir, User: user, Agents: agents, Drain: time.Minute,
			Run: []string{"--data-dir", dir, role, "run"}, Reload: []string{"--data-dir", dir, "spoke", "policy", "reload"}}
	}
	return map[string]unit{"hub of the system": of("hub", "root", false), "hub of a user": of("hub", "", false), "hub with agents": of("hub", "daemon", true),
		"spoke of the system": of("spoke", "root", true), "spoke of a user": of("spoke", "", true)}
}

// Each unit says what it should, and where systemd is it finds nothing wrong with it.
func TestUnitsAreWhatSystemdTakes(t *testing.T) {
	t.Parallel()
	analyze, err := exec.LookPath("systemd-analyze")
	systemd := err == nil
	for name, u := range units() {
		text := u.String()
		got := settingsIn(t, text)
		require.Equal(t, "notify", got["Type"], name)
		require.Equal(t, "on-failure", got["Restart"], name)
		require.Equal(t, "130", got["SuccessExitStatus"], "%s: a stop in its first moments", name)
		require.Equal(t, "150", got["TimeoutStopSec"], "%s: longer than the drain", name)
		require.Equal(t, `/bin/sh --data-dir "/srv/100%% of $$it; \"here\"" `+u.Role+" run", got["ExecStart"], name)
		require.Equal(t, u.User, got["User"], name)
		if !u.Agents {
			require.Equal(t, "mixed", got["KillMode"], name)
		}
		if !systemd {
			continue
		}
		path := filepath.Join(t.TempDir(), "spawnmesh-test.service")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		args := []string{"verify", "--man=no", "--recursive-errors=no", path}
		if u.User == "" {
			args = append([]string{"--user"}, args...)
		}
		c := exec.CommandContext(t.Context(), analyze, args...)
		c.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+t.TempDir())
		out, _ := c.CombinedOutput() // it fails for what it only warns of, too
		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, "Unknown key 'DelegateSubgroup'") { // before systemd 254
				continue
			}
			require.NotContains(t, line, "spawnmesh-test.service", "%s:\n%s", name, text)
		}
	}
}

// install writes what --print shows, with commands that the program has, and replaces nothing that
// says something else.
func TestInstallReplacesNothing(t *testing.T) {
	t.Parallel()
	here := fresh(t)
	here.env = []string{"SPAWNMESH_SLOTS=0", "DATABASE_URL=postgres://mesh:hunter22@db/mesh"}
	require.NoError(t, os.WriteFile(filepath.Join(here.dir, "config.yaml"), []byte("drain: 10m\n"), 0o600))
	units := t.TempDir()
	for _, role := range []string{"hub", "spoke"} {
		shown := here.do(role, "install", "--print", "--", "--log-format", "json")
		path := filepath.Join(units, "spawnmesh-"+role+".service")
		require.NoFileExists(t, path)

		s := here.run("", role, "install", "--unit-dir", units, "--", "--log-format", "json")

		require.Zero(t, s.code, s.err)
		require.Equal(t, path+"\n", s.out)
		require.Contains(t, s.err, "enable --now spawnmesh-"+role+"\n")
		require.Contains(t, s.err, "DATABASE_URL is set here, and not in the unit")
		raw, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, shown, string(raw))
		require.NotContains(t, shown+s.err, "hunter22")
		got := settingsIn(t, shown)
		require.Equal(t, "690", got["TimeoutStopSec"], "of the file")
		require.True(t, strings.HasSuffix(got["ExecStart"], " "+role+" run --log-format json"), got["ExecStart"])
		for _, key := range []string{"ExecStart", "ExecReload"} {
			if words := strings.Fields(got[key]); len(words) > 0 {
				require.Equal(t, program, words[0])
				help, err := exec.CommandContext(t.Context(), program, append(words[1:], "--help")...).CombinedOutput() // flags before it are parsed
				require.NoError(t, err, "%s", help)
				require.Contains(t, string(help), "Usage:\n  spawnmesh "+strings.Join(words[3:5], " "))
			}
		}

		require.Zero(t, here.run("", role, "install", "--unit-dir", units, "--", "--log-format", "json").code, "the same again")
		here.refused(exitConflict, path+" says something else; nothing was changed", role, "install", "--unit-dir", units)
		again, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, shown, string(again))
		here.do(role, "install", "--unit-dir", units, "--force")
		again, err = os.ReadFile(path)
		require.NoError(t, err)
		require.NotEqual(t, shown, string(again))

		here.refused(exitMisuse, "--slots is from 1 to 10000", role, "install", "--print", "--", "--slots", "0")
		here.refused(exitMisuse, role+" run has no flag --slotz", role, "install", "--print", "--", "--slotz", "1")
		here.refused(exitMisuse, `is no name of a unit`, role, "install", "--unit-dir", units, "--unit", "../x")
	}
}

// A unit that starts what others can replace would give them its user.
func TestAProgramThatOthersCanReplaceIsNotInstalled(t *testing.T) {
	t.Parallel()
	here := fresh(t)
	own := filepath.Join(t.TempDir(), "spawnmesh")
	require.NoError(t, exec.CommandContext(t.Context(), "cp", program, own).Run())
	require.NoError(t, os.Chmod(own, 0o777))

	out, err := exec.CommandContext(t.Context(), own, "--data-dir", here.dir, "hub", "install", "--print").CombinedOutput()

	require.Error(t, err)
	require.Contains(t, string(out), own+" can be written by others; run: chmod go-w "+own)
	require.NotContains(t, string(out), "[Service]")
}

// systemd hears that the instance is ready once it works, and that it stops when it does.
func TestSystemdIsToldHowTheProcessStands(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "notify-") // a short path
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	heard := func() string {
		require.NoError(t, l.SetReadDeadline(time.Now().Add(time.Minute)))
		b := make([]byte, 100)
		n, err := l.Read(b)
		require.NoError(t, err)
		return string(b[:n])
	}
	here := fresh(t)
	withCluster(t, here.dir)
	here.env = []string{"NOTIFY_SOCKET=" + socket}
	c := here.command(context.WithoutCancel(t.Context()), "hub", "run", "--link", "127.0.0.1:0", "--ready-file", filepath.Join(dir, "ready"))
	require.NoError(t, c.Start())
	t.Cleanup(func() { _ = c.Process.Kill() })

	require.Equal(t, "READY=1", heard())
	require.FileExists(t, filepath.Join(dir, "ready"))
	here.do("health")

	require.NoError(t, c.Process.Signal(os.Interrupt))
	require.Equal(t, "STOPPING=1", heard())
	_ = c.Wait()
	require.Contains(t, []int{0, exitInterrupted}, c.ProcessState.ExitCode(), "which systemd takes for success")
}

// An abstract socket is one, too, and without one nobody is told.
func TestWhoIsNotified(t *testing.T) {
	t.Parallel()
	name := "@spawnmesh-" + filepath.Base(t.TempDir()) + "-" + time.Now().Format("150405.000000000")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	require.NoError(t, err)
	defer l.Close()
	a := &app{getenv: func(string) string { return name }}

	require.NoError(t, a.notify(t.Context(), "READY=1"))

	b := make([]byte, 100)
	n, err := l.Read(b)
	require.NoError(t, err)
	require.Equal(t, "READY=1", string(b[:n]))
	require.NoError(t, (&app{getenv: func(string) string { return "" }}).notify(t.Context(), "READY=1"))
}
