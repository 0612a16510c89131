package policy_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
)

func TestEntriesThatAreAsGoodAsAShell(t *testing.T) {
	t.Parallel()
	shells := []string{
		"*", "sh **", "sh -c *", "bash *", "/bin/dash **", "env **", "env A=b *", "sudo -u bob *", "python3 *", "python3.12 -c *", "node -e *", "perl **", "xargs **", "find **", "find /srv -exec * ;",
		"find * * * *", "ssh host *", "git **", "git -c * status", "git clone *", "tar xf *", "awk *", "make *", "docker run *", "systemd-run **", "go test **", "/usr/bin/env *", "nice -n 5 *",
		"python3 -m *", "vim *", "busybox **", "curl *", "sqlite3 *", "sqlite3 /srv/db *", "7z *", "qemu-system-x86_64 *", "sh /dev/stdin *", "ed /srv/text *",
	}
	harmless := []string{
		"echo **", "sleep *", "uptime", "sh", "sh -c true", "make all", "git status", "git clone -- *", "git clone --depth 1 -- * *", "find /srv -name *", "python3 /opt/report.py **", "/bin/sh /opt/x.sh *",
		"docker ps", `sh -c \*`, "cat /srv/log",
	}
	for want, list := range map[bool][]string{true: shells, false: harmless} {
		for _, line := range list {
			why := policy.Command{Run: strings.Fields(line)}.Shell()
			require.Equal(t, want, why != "", "%s: %s", line, why)
		}
	}
	p, err := policy.Parse([]byte(policy.Presets["commands"]))
	require.NoError(t, err)
	for _, c := range p.Commands {
		require.Empty(t, c.Shell(), c)
	}
}

// With files of an order a whole command line is a shell that runs what it finds or reads.
func TestEntriesThatRunWhatAnOrderBrings(t *testing.T) {
	t.Parallel()
	brings := func(shell bool, lines ...string) {
		for _, line := range lines {
			c := policy.Command{Run: strings.Fields(line)}
			require.Equal(t, shell, (&policy.Policy{InlineFiles: true}).Shell(c) != "", line)
			require.Equal(t, c.Shell(), (&policy.Policy{}).Shell(c), line)
		}
	}
	brings(true, "sh", "sh -c true", "make all", "python3", "go test", "./build.sh", "bin/x --all", "sh **", "git status", "/usr/bin/git clone -- *", "env sh", "env sh --stdin", "xargs", "docker compose up",
		"docker ps", "psql", "sqlite3", "sqlite3 /srv/db", "sh /dev/stdin", "sh /dev/fd/0 *", "bash /srv/../proc/self/fd/0", "timeout 60 make", "ssh host", "gdb /opt/program", "ed /srv/text", "busybox sh", "bun /opt/x.ts", "hg log")
	brings(false, "uptime", "cat data", "/opt/report", "python3 /opt/report.py **", "/bin/sh /opt/x.sh *", "find /srv -name *", "echo **")
}

func TestReach(t *testing.T) {
	t.Parallel()
	dir := write(t, map[string]string{"policy.yaml": `version: 1
runtimes: [exec, noop]
commands: [{run: /bin/sh **, env_from_file: sh.env, env: {LEVEL: hunter2-a}}, "true"]
directories: [/srv/work]
environment: [CI]
env_from_file: agents.env
limits: {timeout: 2h, memory: 1GiB, pids: 50, cpu_time: 3h, cpus: 1.5, open_files: 4096, file_size: 3MiB, max_output: 1GiB, idle: 30m}
`, "agents.env": "TOKEN=hunter2-b\n", "sh.env": "KEY=hunter2-c\n"})
	p, err := policy.Load(dir)
	require.NoError(t, err)
	reach := func(argv ...string) policy.Reach {
		return p.Reach(dir, &commands.Spawn{Runtime: commands.RuntimeExec, Argv: argv})
	}

	sh, other := reach("sh", "-c", "x"), reach("true")

	require.Equal(t, "/bin/sh", sh.Program)
	require.Equal(t, []string{filepath.Join(dir, "agents.env"), filepath.Join(dir, "sh.env")}, sh.Secrets)
	require.Equal(t, []string{"KEY", "LEVEL", "TOKEN"}, sh.HostEnv)
	require.Equal(t, []string{"/srv/work"}, sh.Directories)
	require.Equal(t, []string{"CI"}, sh.Environment)
	require.Equal(t, "2h0m0s", sh.Timeout)
	require.NotEmpty(t, sh.Shell)
	require.Equal(t, []string{filepath.Join(dir, "agents.env")}, other.Secrets)
	require.Equal(t, []string{"TOKEN"}, other.HostEnv)
	require.Empty(t, other.Shell)
	words := strings.Join(sh.Words(), "\n")
	require.Contains(t, words, "other limits: 1GiB of memory, 50 processes, 3h of processor time, 1.5 processors, 4096 open files, 64GiB of disk in 4000000 files, 3MiB a file, 16MiB kept of each output stream, 1GiB written to each output stream, 30m without output")
	require.Contains(t, words, "as good as a shell: ")
	require.NotContains(t, words, secret)
	nothing := p.Reach(dir, &commands.Spawn{Runtime: commands.RuntimeNoop})
	require.Contains(t, strings.Join(nothing.Words(), "\n"), "starts: nothing\nisolation: nothing is started\nfiles: none")
}
