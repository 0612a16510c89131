package spoke_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/spoke"
)

func TestPresets(t *testing.T) {
	t.Parallel()
	exec := func(argv ...string) *commands.Spawn {
		return &commands.Spawn{Runtime: commands.RuntimeExec, Argv: argv}
	}
	noop := &commands.Spawn{Runtime: commands.RuntimeNoop}
	tests := map[string]struct{ yes, no []*commands.Spawn }{
		"deny":     {nil, []*commands.Spawn{noop, exec("echo"), exec("true")}},
		"commands": {[]*commands.Spawn{noop, exec("echo", "hi"), exec("go", "test", "./...")}, []*commands.Spawn{exec("go", "run", "x.go"), exec("sh", "-c", "echo")}},
		"open":     {[]*commands.Spawn{noop, exec("sh", "-c", "echo"), {Runtime: commands.RuntimeExec, Argv: []string{"a"}, Dir: "/srv", Env: []commands.EnvVar{{Name: "X"}}}}, nil},
	}
	require.Len(t, spoke.Presets, len(tests))
	for name, tt := range tests {
		p, err := spoke.ParsePolicy([]byte(spoke.Presets[name]))
		require.NoError(t, err, name)
		for _, s := range tt.yes {
			require.Nil(t, p.Judge(s), "%s: %v", name, s.Argv)
		}
		for _, s := range tt.no {
			require.NotNil(t, p.Judge(s), "%s: %v", name, s.Argv)
		}
		require.Equal(t, 24*time.Hour, p.Timeout(0), "the longest run is the usual one")
		require.Equal(t, time.Minute, p.Timeout(time.Minute))
		require.Equal(t, 24*time.Hour, p.Timeout(48*time.Hour))
	}
}

func TestAPolicyCanBeWrittenAndReadAgain(t *testing.T) {
	t.Parallel()
	for name, text := range spoke.Presets {
		p, err := spoke.ParsePolicy([]byte(text))
		require.NoError(t, err)

		again, err := p.Text()
		require.NoError(t, err)
		same, err := spoke.ParsePolicy(again)

		require.NoError(t, err, name)
		require.Equal(t, p, same)
	}
}

// What a policy says is understood or the policy is refused, with the line.
func TestPolicyThatIsRefused(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ text, want string }{
		"an unknown key":            {"version: 1\nruntimes: []\ncommand: [echo]\n", "[3:1]"},
		"an unknown key inside":     {"version: 1\nlimits:\n  timeout: 1h\n  cores: 2\n", "[4:3]"},
		"a key twice":               {"version: 1\ncommands: [echo]\ncommands: [go]\n", "[3:1]"},
		"a tab":                     {"version: 1\nlimits:\n\ttimeout: 1h\n", "[3:1]"},
		"a text for a list":         {"version: 1\nruntimes: exec\n", "[2:11]"},
		"no closing bracket":        {"version: 1\nruntimes: [exec\n", "[2:11]"},
		"nothing":                   {"", "version is 0"},
		"no version":                {"runtimes: []\n", "version is 0"},
		"version 2":                 {"version: 2\n", "version is 2; this program knows version 1"},
		"an unknown runtime":        {"version: 1\nruntimes: [docker]\n", `runtime "docker" is not known`},
		"a directory that moves":    {"version: 1\ndirectories: [srv]\n", `directory "srv" is not absolute`},
		"a timeout without a unit":  {"version: 1\nlimits:\n  timeout: 24\n", "limits.timeout"},
		"a negative timeout":        {"version: 1\nlimits:\n  timeout: -1h\n", "limits.timeout"},
		"a negative output":         {"version: 1\nlimits:\n  output: -1\n", "limits.output"},
		"a second document":         {"version: 1\nruntimes: [exec]\ncommands: ['*']\n---\nversion: 1\n", "second document"},
		"2 MiB of it":               {"version: 1\n" + strings.Repeat("# "+strings.Repeat("x", 1022)+"\n", 2048), "larger than"},
		"a list for the whole file": {"- version: 1\n", "[1:1]"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(spoke.PolicyFile(dir), []byte(tt.text), 0o644))

			_, err := spoke.LoadPolicy(dir)

			require.ErrorContains(t, err, tt.want)
			require.ErrorContains(t, err, spoke.PolicyFile(dir))
		})
	}
}

func TestPolicyFiles(t *testing.T) {
	t.Parallel()
	open := []byte(spoke.Presets["open"])
	echo := &commands.Spawn{Runtime: commands.RuntimeExec, Argv: []string{"echo"}}
	t.Run("without one nothing is allowed", func(t *testing.T) {
		p, err := spoke.LoadPolicy(t.TempDir())
		require.NoError(t, err)
		require.NotNil(t, p.Judge(echo))
	})
	t.Run("one that others can write is refused", func(t *testing.T) {
		for _, mode := range []os.FileMode{0o666, 0o664, 0o602} {
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(spoke.PolicyFile(dir), open, 0o600))
			require.NoError(t, os.Chmod(spoke.PolicyFile(dir), mode))
			_, err := spoke.LoadPolicy(dir)
			require.ErrorContains(t, err, "run: chmod 644 "+spoke.PolicyFile(dir))
		}
	})
	t.Run("one that is a directory is refused", func(t *testing.T) {
		dir := t.TempDir()
		require.NoError(t, os.Mkdir(spoke.PolicyFile(dir), 0o755))
		_, err := spoke.LoadPolicy(dir)
		require.ErrorContains(t, err, "reading the policy")
	})
	t.Run("a good one is read", func(t *testing.T) {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(spoke.PolicyFile(dir), open, 0o644))
		p, err := spoke.LoadPolicy(dir)
		require.NoError(t, err)
		require.Nil(t, p.Judge(echo))
		require.Equal(t, spoke.DefaultPath, p.Path)
	})
}

func TestJudge(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for _, d := range []string{"allowed/inside", "allowed-not", "secret"} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, d), 0o755))
	}
	require.NoError(t, os.Symlink(filepath.Join(root, "secret"), filepath.Join(root, "allowed", "escape")))
	require.NoError(t, os.Symlink(filepath.Join(root, "allowed", "inside"), filepath.Join(root, "allowed", "stay")))
	policy, err := spoke.ParsePolicy([]byte(`
version: 1
runtimes: [exec]
commands: [echo, go test, /usr/bin/make, "git  status"]
directories: [` + filepath.Join(root, "allowed") + `, /usr/share/]
environment: [CI, LANG]
capabilities: [go, gpu]
`))
	require.NoError(t, err)
	argv := func(words ...string) func(*commands.Spawn) { return func(s *commands.Spawn) { s.Argv = words } }
	dir := func(d string) func(*commands.Spawn) { return func(s *commands.Spawn) { s.Dir = d } }
	env := func(names ...string) func(*commands.Spawn) {
		return func(s *commands.Spawn) {
			for _, n := range names {
				s.Env = append(s.Env, commands.EnvVar{Name: n, Value: "very-secret"})
			}
		}
	}
	needs := func(c ...string) func(*commands.Spawn) { return func(s *commands.Spawn) { s.Capabilities = c } }
	tests := map[string]struct {
		change func(*commands.Spawn)
		code   commands.Code // "" = allowed
	}{
		"an allowed command":                          {argv("echo"), ""},
		"with any arguments":                          {argv("echo", "-n", "$(id)"), ""},
		"an allowed beginning":                        {argv("go", "test"), ""},
		"an allowed beginning and more":               {argv("go", "test", "./...", "-race"), ""},
		"words with more space between":               {argv("git", "status"), ""},
		"only half of an allowed beginning":           {argv("go"), commands.Policy},
		"another second word":                         {argv("go", "run"), commands.Policy},
		"a beginning in one word":                     {argv("go test"), commands.Policy},
		"a longer word":                               {argv("echoes"), commands.Policy},
		"another case":                                {argv("Echo"), commands.Policy},
		"a path that is allowed":                      {argv("/usr/bin/make", "all"), ""},
		"the name of a path that is allowed":          {argv("make"), commands.Policy},
		"a path to a name that is allowed":            {argv("/bin/echo"), commands.Policy},
		"a relative path to it":                       {argv("./echo"), commands.Policy},
		"another runtime":                             {func(s *commands.Spawn) { s.Runtime, s.Argv = commands.RuntimeNoop, nil }, commands.Policy},
		"an allowed directory":                        {dir(filepath.Join(root, "allowed")), ""},
		"one inside it":                               {dir(filepath.Join(root, "allowed", "inside")), ""},
		"a link that stays inside":                    {dir(filepath.Join(root, "allowed", "stay")), ""},
		"a link that leads out":                       {dir(filepath.Join(root, "allowed", "escape")), commands.BadPath},
		"a directory with the same first letters":     {dir(filepath.Join(root, "allowed-not")), commands.BadPath},
		"its parent":                                  {dir(root), commands.BadPath},
		"one that is not there":                       {dir(filepath.Join(root, "allowed", "nothing")), commands.BadPath},
		"one that is allowed with a slash at its end": {dir("/usr/share"), ""},
		"one that climbs out":                         {dir(filepath.Join(root, "allowed") + "/../secret"), commands.BadPath},
		"one that climbs and comes back":              {dir(filepath.Join(root, "allowed") + "/../allowed"), commands.BadPath},
		"one with a slash too many":                   {dir(filepath.Join(root, "allowed") + "/"), commands.BadPath},
		"a relative one":                              {dir("allowed"), commands.BadPath},
		"allowed variables":                           {env("CI", "LANG"), ""},
		"a variable that is not allowed":              {env("CI", "LD_PRELOAD"), commands.Policy},
		"a variable in another case":                  {env("ci"), commands.Policy},
		"capabilities that are here":                  {needs("gpu", "go"), ""},
		"a capability that is not":                    {needs("go", "tpu"), commands.Capability},
		"a capability in another case":                {needs("GPU"), commands.Capability},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := &commands.Spawn{Task: "x", Runtime: commands.RuntimeExec, Argv: []string{"echo"}}
			tt.change(s)

			got := policy.Judge(s)

			if tt.code == "" {
				require.Nil(t, got)
				return
			}
			require.NotNil(t, got)
			require.Equal(t, tt.code, got.Code)
			require.NotContains(t, got.Why+got.Hint, "very-secret")
			if tt.code != commands.BadPath || filepath.Clean(s.Dir) == s.Dir && filepath.IsAbs(s.Dir) {
				require.Contains(t, got.Hint, "policy.yaml", "it says what could be allowed where")
			}
		})
	}
}
