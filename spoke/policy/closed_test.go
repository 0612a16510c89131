package policy

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
)

// What an agent with a user of its own cannot start, or cannot enter, is said before an order finds out,
// with what is in the way: also behind a link. A process of such a user agrees.
func TestWhatTheUserOfAnAgentMayNotUseIsSaid(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	require.NoError(t, os.Chmod(filepath.Dir(top), 0o755))
	require.NoError(t, os.Chmod(top, 0o755))
	at := func(name string) string { return filepath.Join(top, name) }
	for name, mode := range map[string]os.FileMode{"shut": 0o700, "shut/work": 0o755, "open": 0o755, "open/work": 0o755} {
		require.NoError(t, os.MkdirAll(at(name), 0o755))
		require.NoError(t, os.Chmod(at(name), mode))
	}
	for name, mode := range map[string]os.FileMode{"shut/true": 0o755, "open/true": 0o755, "open/own": 0o700, "shut/file": 0o644} {
		require.NoError(t, exec.CommandContext(t.Context(), "cp", "/bin/true", at(name)).Run())
		require.NoError(t, os.Chmod(at(name), mode))
	}
	for name, to := range map[string]string{"shut/back": at("open/true"), "open/through": "../shut/back", "open/in": at("shut/true"),
		"open/fine": "work/../true", "open/file": at("shut/file"), "open/way": "../shut", "open/round": "round"} {
		require.NoError(t, os.Symlink(to, at(name)))
	}
	shut := func(path, kind string) string {
		return "an agent with a user of its own may not enter " + at("shut") + " (mode 0700), which leads to " + path + "; name a " + kind + " that is open to every user, or run: chmod o+x " + at("shut")
	}
	for name, tt := range map[string]struct{ program, dir, says string }{
		"all is open":                             {at("open/true"), at("open/work"), ""},
		"a link in the open":                      {at("open/fine"), "", ""},
		"a program behind a closed directory":     {at("shut/true"), "", shut(at("shut/true"), "program")},
		"a link to it":                            {at("open/in"), "", shut(at("open/in"), "program")},
		"a link through a closed directory":       {at("open/through"), "", shut(at("open/through"), "program")},
		"a program of its owner alone":            {at("open/own"), "", "an agent with a user of its own may not execute " + at("open/own") + " (mode 0700); name another program, or run: chmod o+x " + at("open/own")},
		"a directory behind a closed one":         {"/bin/true", at("shut/work"), shut(at("shut/work"), "directory")},
		"a directory behind a link":               {"/bin/true", at("open/way/work"), shut(at("open/way/work"), "directory")},
		"no directory, behind a closed one":       {"/bin/true", at("shut/nosuch"), "there is no directory " + at("shut/nosuch")},
		"a link to a file behind a closed one":    {"/bin/true", at("open/file"), at("open/file") + " is not a directory"},
		"below a file that is no directory":       {"/bin/true", at("open/true/work"), "the directory of the order cannot be entered: stat " + at("open/true/work") + ": not a directory"},
		"a link to itself where a directory is":   {"/bin/true", at("open/round"), "the directory of the order cannot be entered: stat " + at("open/round") + ": too many levels of symbolic links"},
		"a program that is missing, which is all": {at("shut/nosuch"), at("shut/work"), "no such file or directory; install it on this host or correct the command"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &commands.Spawn{Runtime: commands.RuntimeExec, Argv: []string{tt.program}, Dir: tt.dir}

			require.Equal(t, tt.says, withLevel(t, "user").Reach("", s).Missing)

			if os.Geteuid() == 0 {
				cmd := exec.CommandContext(t.Context(), tt.program)
				cmd.Dir = tt.dir
				cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 54321, Gid: 54321}}
				require.Equal(t, tt.says == "", cmd.Run() == nil)
			}
		})
	}
	own := &commands.Spawn{Runtime: commands.RuntimeExec, Argv: []string{at("open/own")}, Dir: at("open/way/work")}
	require.Empty(t, withLevel(t, "landlock").Reach("", own).Missing, "it has the user of the spoke")
}

// withLevel is a policy that allows all at one level.
func withLevel(t *testing.T, level string) *Policy {
	t.Helper()
	p, err := Parse([]byte("version: 1\nruntimes: [exec]\ncommands: [\"*\"]\ndirectories: [\"*\"]\nisolation: " + level + "\n"))
	require.NoError(t, err)
	return p
}
