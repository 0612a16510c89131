package runtime_test

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/spoke/runtime"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
)

// world is a directory tree with programs good and bad:
//
//	bin/tool   executable        bin/plain  not executable   bin/only  not executable
//	bin2/plain executable        bin2/box   a directory      jobs/run  executable
func world(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for name, mode := range map[string]os.FileMode{"bin/tool": 0o755, "bin/plain": 0o644, "bin/only": 0o644, "bin2/plain": 0o755, "bin2/box/x": 0o755, "jobs/run": 0o755} {
		name = filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, []byte("#!/bin/sh\necho \"$0\" \"$@\"; env\n"), 0o600))
		require.NoError(t, os.Chmod(name, mode))
	}
	require.NoError(t, os.Symlink("loop", filepath.Join(root, "jobs/loop")))
	return root
}

func command(root string, argv ...string) runtime.Exec {
	return runtime.Exec{Argv: argv, Dir: root + "/jobs", Path: root + "/bin:" + root + "/bin2"}
}

func TestProgram(t *testing.T) {
	t.Parallel()
	root := world(t)
	tests := map[string]struct {
		name, path string
		want       string
		reason     supervisor.Reason
	}{
		"a name":                          {"tool", root + "/bin", root + "/bin/tool", ""},
		"a name in a later directory":     {"tool", "/no/such:" + root + "/bin", root + "/bin/tool", ""},
		"one that is executable later":    {"plain", root + "/bin:" + root + "/bin2", root + "/bin2/plain", ""},
		"an absolute path":                {root + "/bin/tool", "", root + "/bin/tool", ""},
		"relative to the work directory":  {"./run", "", root + "/jobs/run", ""},
		"relative to the one above":       {"../bin/tool", "", root + "/bin/tool", ""},
		"a name, but no path":             {"tool", "", "", supervisor.NotFound},
		"a name, but an empty entry":      {"run", ":", "", supervisor.NotFound},
		"a name, but a relative entry":    {"run", ".:work", "", supervisor.NotFound},
		"a name that is nowhere":          {"nothing", root + "/bin", "", supervisor.NotFound},
		"a name that is a directory":      {"box", root + "/bin2", "", supervisor.NotFound},
		"a name that is not executable":   {"only", root + "/bin:" + root + "/bin2", "", supervisor.NotExecutable},
		"a path that is missing":          {root + "/bin/none", "", "", supervisor.NotFound},
		"a path that is a directory":      {root + "/bin2/box", "", "", supervisor.IsDirectory},
		"a path that is not executable":   {root + "/bin/plain", "", "", supervisor.NotExecutable},
		"a path through a file":           {root + "/bin/tool/x", "", "", supervisor.NotFound},
		"a path to a device":              {"/dev/null", "", "", supervisor.NotExecutable},
		"a link to itself":                {"./loop", "", "", supervisor.ShebangLoop},
		"a name of dots":                  {"..", root + "/bin", "", supervisor.NotFound},
		"a name that a shell would split": {"tool;x", root + "/bin", "", supervisor.NotFound},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := command(root, tt.name, "an argument", "$HOME; *")
			e.Path = tt.path

			got, err := e.Spec()

			if tt.reason != "" {
				start, ok := errors.AsType[*supervisor.StartError](err)
				require.True(t, ok, "%v", err)
				require.Equal(t, tt.reason, start.Reason, err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, []string{tt.want, "an argument", "$HOME; *"}, got.Argv)
		})
	}
}

func TestArgv(t *testing.T) {
	t.Parallel()
	root := world(t)
	tests := map[string]struct {
		argv []string
		text string
	}{
		"nothing":                   {nil, "the command is empty"},
		"an empty program":          {[]string{""}, "the command is empty"},
		"as many as allowed":        {append([]string{"tool"}, make([]string, 4095)...), ""},
		"one more than allowed":     {append([]string{"tool"}, make([]string, 4096)...), "4097 arguments, the limit is 4096"},
		"as long as allowed":        {[]string{"tool", strings.Repeat("x", 128<<10-4)}, ""},
		"one byte more":             {[]string{"tool", strings.Repeat("x", 128<<10-3)}, "131073 bytes long, the limit is 131072"},
		"3 MiB":                     {[]string{"tool", strings.Repeat("x", 3<<20)}, "the limit is 131072; pass large inputs in a file"},
		"a NUL":                     {[]string{"tool", "a", "b\x00c"}, "argument 2 holds a NUL"},
		"a NUL in the program":      {[]string{"to\x00ol"}, "argument 0 holds a NUL"},
		"not UTF-8":                 {[]string{"tool", "\xc3("}, "argument 1 is not UTF-8"},
		"empty and odd arguments":   {[]string{"tool", "", "-", "--", "\n", "🙂", "\\"}, ""},
		"what a shell would expand": {[]string{"tool", "`id`", "$(id)", "&& id"}, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			got, err := command(root, tt.argv...).Spec()

			if tt.text != "" {
				requireRefusal(t, err, runtime.BadArgv, tt.text)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tt.argv[1:], got.Argv[1:])
		})
	}
}

func requireRefusal(t *testing.T, err error, reason runtime.Reason, text string) {
	t.Helper()
	refusal, ok := errors.AsType[*runtime.Refusal](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, reason, refusal.Reason, err)
	require.ErrorContains(t, err, text)
}

func TestDir(t *testing.T) {
	t.Parallel()
	root := world(t)
	for name, dir := range map[string]string{"missing": root + "/none", "a file": root + "/bin/tool", "relative": "jobs", "empty": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := runtime.OpenDir(dir)

			start, ok := errors.AsType[*supervisor.StartError](err)
			require.True(t, ok, "%v", err)
			require.Equal(t, supervisor.BadDirectory, start.Reason)
		})
	}
}

func TestEnvironment(t *testing.T) {
	t.Parallel()
	root := world(t)
	work, path := root+"/jobs", root+"/bin:"+root+"/bin2"
	base := map[string]string{"PATH": path, "HOME": work, "LANG": "C.UTF-8", "TMPDIR": work}
	tests := map[string]struct {
		change func(*runtime.Exec)
		want   map[string]string // differences from base
	}{
		"nothing asked for":       {func(*runtime.Exec) {}, nil},
		"variables":               {func(e *runtime.Exec) { e.Env = map[string]string{"COLOUR": "blue=sky", "EMPTY": ""} }, map[string]string{"COLOUR": "blue=sky", "EMPTY": ""}},
		"identity":                {func(e *runtime.Exec) { e.IDs = map[string]string{"SPAWNMESH_TASK": "t1"} }, map[string]string{"SPAWNMESH_TASK": "t1"}},
		"another temp":            {func(e *runtime.Exec) { e.TempDir = "/tmp/x" }, map[string]string{"TMPDIR": "/tmp/x"}},
		"a home of its own":       {func(e *runtime.Exec) { e.Home = "/agents/1/home" }, map[string]string{"HOME": "/agents/1/home"}},
		"another home":            {func(e *runtime.Exec) { e.Env = map[string]string{"HOME": "/home/x"} }, map[string]string{"HOME": "/home/x"}},
		"who commits":             {func(e *runtime.Exec) { e.Env = map[string]string{"GIT_AUTHOR_NAME": "x"} }, map[string]string{"GIT_AUTHOR_NAME": "x"}},
		"a path by policy":        {func(e *runtime.Exec) { e.Env, e.Allowed = map[string]string{"PATH": "/x"}, []string{"PATH"} }, map[string]string{"PATH": "/x"}},
		"a family member by name": {func(e *runtime.Exec) { e.Env, e.Allowed = map[string]string{"LD_X": "1"}, []string{"LD_X"} }, map[string]string{"LD_X": "1"}},
		"a lower-case name":       {func(e *runtime.Exec) { e.Env = map[string]string{"http_proxy": "x"} }, map[string]string{"http_proxy": "x"}},
		"the longest value":       {func(e *runtime.Exec) { e.Env = map[string]string{"X": strings.Repeat("v", 64<<10)} }, map[string]string{"X": strings.Repeat("v", 64<<10)}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := command(root, "tool")
			tt.change(&e)
			want := maps.Clone(base)
			maps.Copy(want, tt.want)

			got, err := e.Spec()

			require.NoError(t, err)
			var list []string
			for name, value := range want {
				list = append(list, name+"="+value)
			}
			slices.Sort(list)
			require.ElementsMatch(t, list, got.Env)
			again, err := e.Spec()
			require.NoError(t, err)
			require.Equal(t, got, again, "the same command gives the same Spec")
		})
	}
}

func TestEnvironmentRefusals(t *testing.T) {
	t.Parallel()
	root := world(t)
	const secret = "hunter2-canary"
	type row struct {
		name   string
		value  string
		reason runtime.Reason
		text   string
	}
	tests := map[string]row{
		"an empty name":                {"", secret, runtime.BadEnv, `variable ""`},
		"a name with =":                {"A=B", secret, runtime.BadEnv, `variable "A=B"`},
		"a name with NUL":              {"A\x00B", secret, runtime.BadEnv, `variable "A\x00B"`},
		"a name with a blank":          {"A B", secret, runtime.BadEnv, `variable "A B"`},
		"a name with a line break":     {"A\nB", secret, runtime.BadEnv, `variable "A\nB"`},
		"a name that is not UTF-8":     {"A\xff", secret, runtime.BadEnv, `variable "A\xff"`},
		"a value with NUL":             {"TOKEN", secret + "\x00", runtime.BadEnv, `"TOKEN": the value holds a NUL`},
		"a value that is not UTF-8":    {"TOKEN", secret + "\xff", runtime.BadEnv, `"TOKEN": the value is not UTF-8`},
		"a value over 64 KiB":          {"TOKEN", strings.Repeat(secret, 5000), runtime.BadEnv, `"TOKEN": the value is 70000 bytes long`},
		"a value of 1 MiB":             {"TOKEN", strings.Repeat("v", 1<<20), runtime.BadEnv, `"TOKEN"`},
		"the twin of one of ours":      {"Home", secret, runtime.BadEnv, `"HOME" and "Home" differ in case only`},
		"a name of the spoke's":        {"SPAWNMESH_TASK", secret, runtime.BadEnv, `"SPAWNMESH_TASK"`},
		"the marker":                   {"SPAWNMESH_MARKER", secret, runtime.BadEnv, `"SPAWNMESH_MARKER"`},
		"the twin of a dangerous name": {"ld_preload", secret, runtime.Policy, `"ld_preload"`},
		"another case of PATH":         {"Path", secret, runtime.Policy, `"Path"`},
	}
	for _, name := range []string{
		"LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "DYLD_INSERT_LIBRARIES", "BASH_ENV", "ENV", "PROMPT_COMMAND", "GIT_SSH_COMMAND", "GIT_SSH",
		"GIT_EXTERNAL_DIFF", "GIT_ASKPASS", "GIT_EXEC_PATH", "GIT_CONFIG_COUNT", "GIT_PROXY_COMMAND", "NODE_OPTIONS", "PYTHONSTARTUP",
		"PYTHONPATH", "PERL5OPT", "RUBYOPT", "JAVA_TOOL_OPTIONS", "IFS", "PATH", "BASH_FUNC_ls%%", "SHELLOPTS",
	} {
		tests["the dangerous "+name] = row{name, secret, runtime.Policy, `"` + name + `" can make programs run other code`}
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := command(root, "tool")
			e.Env = map[string]string{tt.name: tt.value, "GOOD": "fine"}
			e.Allowed = []string{"SOMETHING_ELSE", "ld_*", "LD_*"} // a pattern is not a name

			_, err := e.Spec()

			requireRefusal(t, err, tt.reason, tt.text)
			require.NotContains(t, err.Error(), secret)
		})
	}
}

func TestTwins(t *testing.T) {
	t.Parallel()
	e := command(world(t), "tool")
	e.Env = map[string]string{"HTTP_PROXY": "a-secret", "http_proxy": "b-secret"}

	_, err := e.Spec()

	requireRefusal(t, err, runtime.BadEnv, `"HTTP_PROXY" and "http_proxy" differ in case only`)
	require.NotContains(t, err.Error(), "secret")
}

func TestIdentityNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"SPAWNMESH_OTHER", "TASK", "SPAWNMESH_MARKER", "LD_PRELOAD", "spawnmesh_task"} {
		e := command(world(t), "tool")
		e.IDs = map[string]string{name: "x"}

		_, err := e.Spec()

		requireRefusal(t, err, runtime.BadEnv, name)
	}
}

// What is built here is what a real agent gets.
func TestSpecRuns(t *testing.T) {
	t.Parallel()
	root := world(t)
	e := command(root, "tool", "a b", "$HOME")
	e.Env = map[string]string{"COLOUR": "blue sky"}
	e.Path += ":/usr/bin:/bin"
	spec, err := e.Spec()
	require.NoError(t, err)
	dir := filepath.Join(t.TempDir(), "attempt")

	a, err := supervisor.Start(t.Context(), dir, spec)

	require.NoError(t, err)
	select {
	case <-a.Done():
	case <-time.After(15 * time.Second):
		require.FailNow(t, "the agent did not end")
	}
	require.NoError(t, a.Close())
	b, err := os.ReadFile(filepath.Join(dir, "stdout"))
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	require.Equal(t, root+"/bin/tool a b $HOME", lines[0])
	require.Subset(t, lines, append(spec.Env, "SPAWNMESH_MARKER="+a.Marker()))
	for _, line := range lines[1:] { // the shell adds a few of its own
		name, _, _ := strings.Cut(line, "=")
		require.Contains(t, []string{"COLOUR", "HOME", "LANG", "PATH", "TMPDIR", "SPAWNMESH_MARKER", "PWD", "SHLVL", "_", "OLDPWD"}, name)
	}
}
