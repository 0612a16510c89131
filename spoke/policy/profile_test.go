package policy

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
)

// Every preset is a profile.
func TestProfilePresets(t *testing.T) {
	for name, text := range ProfilePresets {
		v, err := ParseProfile(name, []byte(text))
		require.NoError(t, err, name)
		require.NotEmpty(t, v.argv("/x"))
	}
}

func TestProfilesThatAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                                 "runtime \"\" is not known",
		"runtime: sh\ncommand: [x]":        "runtime \"sh\" is not known; there are exec and acp",
		"runtime: acp":                     "no command",
		"runtime: acp\ncommand: [x]\ny: 1": "unknown field",
		"runtime: exec\ncommand: [x]\nallow: [read]":              "allow, deny, ask and auth are of the runtime acp",
		"runtime: acp\ncommand: [x]\nallow: [reed]":               `"reed" is no kind of tool`,
		"runtime: acp\ncommand: [x]\nsession: old":                `session "old" is neither new nor resume`,
		"runtime: acp\ncommand: [x]\nlimit_patterns: [\"(\"]":     "limit_patterns",
		"runtime: acp\ncommand: [x]\nenv: {SPAWNMESH_TASK: a}":    "SPAWNMESH_",
		"runtime: acp\ncommand: [x, \"a\\0b\"]":                   "argument",
		"runtime: acp\ncommand: [x]\naccount: \"A b\"":            "account",
		"runtime: acp\ncommand: [x]\nruntime: exec\ncommand: [y]": "already defined",
	} {
		_, err := ParseProfile("x", []byte(text))
		require.ErrorContains(t, err, want, text)
	}
	_, err := ParseProfile("../x", []byte("runtime: exec\ncommand: [x]"))
	require.ErrorContains(t, err, "is not 1 to 32 lower-case letters")
}

// An order names a profile alone, and only one that the host has written: no entry of the policy means one, be it every command.
func TestAnOrderNamesAProfile(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o700))
	write := func(name, text string, mode os.FileMode) {
		t.Helper()
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), mode))
		require.NoError(t, os.Chmod(filepath.Join(dir, name), mode))
	}
	write("policy.yaml", "version: 1\nruntimes: [exec]\ncommands: ['*']\nenvironment: [CI]\nisolation: none\nallow_root_agents: true\n", 0o600)
	before, err := Load(dir)
	require.NoError(t, err)
	order := func(names ...string) *commands.Spawn {
		s := &commands.Spawn{Task: "00000000-0000-4000-8000-000000000000", Runtime: commands.RuntimeExec, Argv: names}
		return s
	}
	require.Equal(t, commands.Policy, before.Judge(order("profile:tests"), nil).Code)

	write("profiles/tests.yaml", "runtime: exec\ncommand: [sh, -c, 'echo *']\nenvironment: [LD_PRELOAD]\naccount: tests\nenv: {A: b}\n", 0o600)
	write("profiles/coder.yaml", "runtime: acp\ncommand: [coder, --x]\nallow: [read]\ndeny: ['*']\nlimit_patterns: ['a limit']\nsession: new\n", 0o600)
	write("profiles/notes.txt", "of the host", 0o600)
	p, err := Load(dir)
	require.NoError(t, err)

	require.NotEqual(t, before.ID(), p.ID(), "a hub asks anew who has refused it")
	require.Subset(t, p.Offers(), []string{"profile:coder", "profile:tests"})
	require.Nil(t, p.Judge(order("profile:tests"), nil))
	require.Contains(t, p.Judge(order("profile:tests", "-x"), nil).Why, "more was named than the profile")
	require.Contains(t, p.Judge(order("profile:none"), nil).Why, "there is no profile:none on this spoke")
	s := order("profile:tests")
	s.Env = []commands.EnvVar{{Name: "LD_PRELOAD"}}
	require.Nil(t, p.Judge(s, map[string]string{"LD_PRELOAD": "x"}))
	s.Argv = []string{"true"}
	require.Equal(t, commands.Policy, p.Judge(s, map[string]string{"LD_PRELOAD": "x"}).Code)
	e := p.Exec(order("profile:tests"), nil)
	require.Equal(t, []any{[]string{"sh", "-c", "echo *"}, map[string]string{"A": "b"}}, []any{e.Argv, e.Host})
	n := p.OpenNamed(order("profile:tests"))
	defer n.Close()
	require.Equal(t, "tests", n.Account())
	self, err := os.Executable()
	require.NoError(t, err)
	require.Equal(t, []string{self, "worker", "acp", "--allow=read", "--deny=*", "--limit-pattern=a limit", "--new-session", "--", "coder", "--x"}, p.Exec(order("profile:coder"), nil).Argv)
	met, err := p.MetLimit([]string{"profile:coder"}, "this is a limit", "all is well")
	require.NoError(t, err)
	require.True(t, met)
	met, err = p.MetLimit([]string{"profile:coder"}, "it has used up its tokens", "next I write of a limit", "a limit")
	require.NoError(t, err)
	require.False(t, met, "what a coding agent writes is no limit")

	write("profiles/tests.yaml", "runtime: exec\ncommand: [sh]\nenv: {A: b}\n", 0o644)
	_, err = Load(dir)
	require.ErrorContains(t, err, "holds values under env, and others can read it")
	write("profiles/tests.yaml", "runtime: exec\ncommand: [sh]\n", 0o666)
	_, err = Load(dir)
	require.ErrorContains(t, err, "can be written by others")
}
