package policy_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
)

// secret is the beginning of every value that must stay on the host.
const secret = "hunter2-"

// write makes a data directory of files, each with mode 0600.
func write(t *testing.T, files map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return dir
}

const furnished = `version: 1
runtimes: [exec]
commands:
  - run: report ...
    env: {LEVEL: hunter2-entry, common: hunter2-folded}
    env_from_file: report.env
    home: /srv/report
    path: /opt/report/bin
  - plain ...
environment: ["*", PATH]
home: /srv/agents
env: {LEVEL: hunter2-all, COMMON: hunter2-common, TMPDIR: /srv/tmp}
env_from_file: agents.env
`

func TestTheHostDecidesTheEnvironment(t *testing.T) {
	t.Parallel()
	dir := write(t, map[string]string{"policy.yaml": furnished, "agents.env": "# for all\n\nTOKEN=hunter2-all=with=signs \nLEVEL=hunter2-file\n",
		"report.env": "TOKEN=hunter2-report\nQUOTED=\"hunter2 x\""})
	p, err := policy.Load(dir)
	require.NoError(t, err)
	tests := map[string]struct {
		program string
		asked   []commands.EnvVar
		want    map[string]string
	}{
		"what is for all": {"plain", nil, map[string]string{"HOME": "/srv/agents", "PATH": policy.DefaultPath, "LEVEL": "hunter2-file", "COMMON": "hunter2-common",
			"TMPDIR": "/srv/tmp", "TOKEN": "hunter2-all=with=signs ", "LANG": "C.UTF-8"}},
		"an entry over what is for all": {"report", nil, map[string]string{"HOME": "/srv/report", "PATH": "/opt/report/bin", "LEVEL": "hunter2-entry", "common": "hunter2-folded",
			"TMPDIR": "/srv/tmp", "TOKEN": "hunter2-report", "QUOTED": `"hunter2 x"`, "LANG": "C.UTF-8"}},
		"the host over the order": {"report", []commands.EnvVar{{Name: "TOKEN"}, {Name: "Level"}, {Name: "PATH"}, {Name: "HOME"}, {Name: "EXTRA"}},
			map[string]string{"HOME": "/srv/report", "PATH": "/opt/report/bin", "LEVEL": "hunter2-entry", "common": "hunter2-folded",
				"TMPDIR": "/srv/tmp", "TOKEN": "hunter2-report", "QUOTED": `"hunter2 x"`, "EXTRA": "asked", "LANG": "C.UTF-8"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &commands.Spawn{Runtime: commands.RuntimeExec, Argv: []string{tt.program, "x"}, Env: tt.asked}
			values := map[string]string{}
			for _, v := range tt.asked {
				values[v.Name] = "asked"
			}
			require.Nil(t, p.Judge(s, values))
			e := p.Exec(s, values)
			e.Argv, e.Dir, e.TempDir = []string{"/bin/true"}, t.TempDir(), "/nowhere"

			spec, err := e.Spec()

			require.NoError(t, err)
			got := map[string]string{}
			for _, pair := range spec.Env {
				name, value, _ := strings.Cut(pair, "=")
				got[name] = value
			}
			require.Equal(t, tt.want, got)
			require.Equal(t, tt.want["PATH"], e.Path, "programs are looked up where the agent looks")
		})
	}
}

// A value leaves this package in the environment of an agent and in no other
// way: neither as it is shown nor in what is wrong with a file.
func TestValuesAreNotShown(t *testing.T) {
	t.Parallel()
	dir := write(t, map[string]string{"policy.yaml": furnished, "agents.env": "TOKEN=hunter2-a\n", "report.env": "TOKEN=hunter2-b\n"})
	p, err := policy.Load(dir)
	require.NoError(t, err)

	text, err := p.Text()
	require.NoError(t, err)
	raw, err := json.Marshal(p)
	require.NoError(t, err)
	shown := string(text) + string(raw)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		shown += fmt.Sprintf(verb, p) + fmt.Sprintf(verb, *p) + fmt.Sprintf(verb, p.Commands[0])
	}

	require.NotContains(t, shown, secret)
	require.NotContains(t, shown, fmt.Sprintf("%x", secret))
	require.Contains(t, string(text), "LEVEL: (hidden)", "names are shown")
	refused := p.Judge(&commands.Spawn{Runtime: commands.RuntimeExec, Argv: []string{"sh"}}, nil)
	require.NotContains(t, fmt.Sprint(refused.Why, refused.Hint, p.Explain([]string{"report2"})), secret)
}

func TestErrorsQuoteNoValue(t *testing.T) {
	t.Parallel()
	good := "version: 1\nenv_from_file: agents.env\n"
	tests := map[string]struct{ policy, env, want string }{
		"a mistake beside a value":       {"version: 1\nenv: {TOKEN: hunter2-x}\ncomands: []\n", "", "[3:1]"},
		"a value that is a list":         {"version: 1\nenv: {TOKEN: [hunter2-x]}\n", "", "[2:14]"},
		"a text for all variables":       {"version: 1\nenv: hunter2-x\n", "", "[2:6]"},
		"a value with a NUL":             {"version: 1\nenv: {TOKEN: \"hunter2-x\\0\"}\n", "", `"TOKEN"`},
		"an open quote in front of one":  {"version: 1\nenv: {TOKEN: \"hunter2-x}\n", "", "[2:14]"},
		"a variable twice":               {"version: 1\nenv:\n  TOKEN: hunter2-x\n  TOKEN: hunter2-y\n", "", "[4:3]"},
		"a line without =":               {good, "A=1\nhunter2-x\n", "agents.env: line 2 is not NAME=VALUE"},
		"a name with a blank":            {good, "A=1\n\nexport TOKEN=hunter2-x\n", "agents.env: line 3: variable \"export TOKEN\""},
		"a line of Windows":              {good, "TOKEN=hunter2-x\r\n", "agents.env: line 1 ends in a carriage return"},
		"a name twice":                   {good, "TOKEN=hunter2-x\nTOKEN=hunter2-y\n", "agents.env: line 2 sets \"TOKEN\" a second time"},
		"names that differ in case only": {good, "TOKEN=hunter2-x\ntoken=hunter2-y\n", `agents.env: variables "TOKEN" and "token" differ in case only`},
		"a value that is not UTF-8":      {good, "TOKEN=hunter2-x\xff\n", "agents.env: line 1: variable \"TOKEN\": the value is not UTF-8"},
		"a PATH":                         {good, "PATH=hunter2-x\n", "agents.env: line 1: variable \"PATH\" has a setting of its own"},
		"a name of the spoke's":          {good, "SPAWNMESH_TASK=hunter2-x\n", "agents.env: line 1"},
		"2 MiB":                          {good, strings.Repeat("# hunter2-x\n", 200_000), "agents.env is larger than"},
		"a file for an entry":            {"version: 1\ncommands:\n  - {run: x, env_from_file: agents.env}\n", "hunter2-x", "agents.env: line 1 is not NAME=VALUE"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := write(t, map[string]string{"policy.yaml": tt.policy, "agents.env": tt.env})

			_, err := policy.Load(dir)

			require.ErrorContains(t, err, tt.want)
			require.ErrorContains(t, err, policy.File(dir))
			require.NotContains(t, err.Error(), secret)
		})
	}
}

func TestFilesOfVariablesAreTheSpokesAlone(t *testing.T) {
	t.Parallel()
	load := func(t *testing.T, spoil func(path string)) error {
		t.Helper()
		dir := write(t, map[string]string{"policy.yaml": "version: 1\nenv_from_file: agents.env\n", "agents.env": "TOKEN=hunter2-x\n"})
		spoil(filepath.Join(dir, "agents.env"))
		_, err := policy.Load(dir)
		return err
	}
	for _, mode := range []os.FileMode{0o600, 0o400} {
		require.NoError(t, load(t, func(path string) { require.NoError(t, os.Chmod(path, mode)) }), "%o", mode)
	}
	for _, mode := range []os.FileMode{0o640, 0o604, 0o644, 0o620, 0o602, 0o610, 0o601, 0o700} {
		err := load(t, func(path string) { require.NoError(t, os.Chmod(path, mode)) })
		require.ErrorContains(t, err, fmt.Sprintf("has mode %#o", mode))
		require.ErrorContains(t, err, "run: chmod 600 ")
	}
	require.ErrorContains(t, load(t, func(path string) { require.NoError(t, os.Remove(path)) }), "agents.env: no such file or directory")
	require.ErrorContains(t, load(t, func(path string) {
		require.NoError(t, os.Remove(path))
		require.NoError(t, os.Mkdir(path, 0o700))
	}), "is not a regular file")
	if os.Geteuid() == 0 { // only root can give a file away
		err := load(t, func(path string) { require.NoError(t, os.Chown(path, 65534, -1)) })
		require.ErrorContains(t, err, "belongs to user 65534")
		require.ErrorContains(t, err, "run: chown 0 ")
	}
}

// A version names rules: whatever changes what is decided changes it, and no
// value can be guessed from it.
func TestAVersionNamesTheRules(t *testing.T) {
	t.Parallel()
	id := func(t *testing.T, text string) string {
		t.Helper()
		p, err := policy.Parse([]byte(text))
		require.NoError(t, err)
		return p.ID()
	}
	base := "version: 1\nruntimes: [exec]\ncommands: [echo ..., {run: x, env: {A: b}, env_from_file: f}]\nenv: {TOKEN: one}\nenv_from_file: g\n"
	want := id(t, base)
	require.Regexp(t, "^[0-9a-f]{12}$", want)

	for name, text := range map[string]string{
		"another value":      strings.ReplaceAll(base, "one", "two"),
		"an entry's value":   strings.ReplaceAll(base, "A: b", "A: c"),
		"the first wildcard": strings.Replace(base, "...", "**", 1),
		"a comment":          "# a comment\n" + base,
		"another spelling":   "runtimes: ['exec']\nenv_from_file: g\nenv:\n  TOKEN: one\ncommands:\n  - [echo, ...]\n  - {run: [x], env_from_file: f, env: {A: b}}\nversion: 1\n",
	} {
		require.Equal(t, want, id(t, text), name)
	}

	seen := map[string]string{want: "the first"}
	for name, text := range map[string]string{
		"another entry":          strings.Replace(base, "echo ...", "echo", 1),
		"another file":           strings.Replace(base, "env_from_file: g", "env_from_file: h", 1),
		"an entry's file":        strings.Replace(base, "env_from_file: f", "env_from_file: h", 1),
		"another name":           strings.Replace(base, "TOKEN", "KEY", 1),
		"a home":                 base + "home: /x\n",
		"a path":                 base + "path: /x\n",
		"a limit":                base + "limits: {timeout: 1h}\n",
		"what revocation does":   base + "on_revoke: finish\n",
		"a lease":                base + "connection_lease: 1h\n",
		"a capability":           base + "capabilities: [go]\n",
		"a variable of an order": base + "environment: [CI]\n",
		"a directory":            base + "directories: [/x]\n",
	} {
		got := id(t, text)
		require.Empty(t, seen[got], name)
		seen[got] = name
	}
}
