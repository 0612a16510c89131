package config_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/config"
)

// load reads settings with a file, variables and flags.
func load(t *testing.T, text string, env map[string]string, args ...string) (map[string]config.Setting, string, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if text != "" {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	f := pflag.NewFlagSet("run", pflag.ContinueOnError)
	f.Int("slots", 4, "")
	f.String("name", "host", "")
	f.String("log-level", "info", "")
	f.Duration("drain", 10*time.Second, "")
	f.Bool("quiet", false, "")
	f.StringSlice("host", nil, "")
	require.NoError(t, f.Parse(args))
	list, err := config.Load(f, func(name string) string { return env[name] }, path, "spoke run")
	by := map[string]config.Setting{}
	for _, s := range list {
		by[s.Name] = s
		if s.Name != "host" {
			require.Equal(t, f.Lookup(s.Name).Value.String(), s.Value, "what is told is what counts")
		}
	}
	return by, path, err
}

// A flag wins over its variable, that over the file, and that over the default.
func TestWhereAValueComesFrom(t *testing.T) {
	t.Parallel()
	const text = "# settings\nslots: 7\nname: 0644\nlog-level: warn\nquiet: true\nhost: a,b\n"
	env := map[string]string{"SPAWNMESH_SLOTS": "8", "SPAWNMESH_NAME": "env", "SPAWNMESH_LOG_LEVEL": "", "SPAWNMESH_DATA_DIR": "/x"}

	got, path, err := load(t, text, env, "--slots", "9")

	require.NoError(t, err)
	require.Equal(t, map[string]config.Setting{
		"slots":     {Name: "slots", Value: "9", Source: config.Flag, Where: "--slots"},
		"name":      {Name: "name", Value: "env", Source: config.Variable, Where: "SPAWNMESH_NAME"},
		"log-level": {Name: "log-level", Value: "warn", Source: config.File, Where: path + ":4"},
		"drain":     {Name: "drain", Value: "10s", Source: config.Default},
		"host":      {Name: "host", Value: "a,b", Source: config.File, Where: path + ":6"},
		"quiet":     {Name: "quiet", Value: "true", Source: config.File, Where: path + ":5"},
	}, got)

	got, _, err = load(t, text, nil, "--slots=4")
	require.NoError(t, err)
	require.Equal(t, "4", got["slots"].Value, "a flag that says the default wins, too")
	require.Equal(t, config.Flag, got["slots"].Source)
	require.Equal(t, "0644", got["name"].Value, "as it is written")

	for _, text := range []string{"", "# nothing\n", "---\n", "{slots: 5}\n"} {
		_, _, err = load(t, text, nil)
		require.NoError(t, err, "%q", text)
	}
}

// What cannot be meant is named with file and line.
func TestWhatIsNoConfiguration(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		text string
		env  map[string]string
		says string // behind the name of the file
	}{
		"an unknown name":          {"name: a\nslotz: 4\n", nil, `:2: "slotz" is no setting of spoke run`},
		"a name of a global flag":  {"data-dir: /x\n", nil, `:1: "data-dir" is no setting of spoke run`},
		"a wrong value":            {"name: a\n\nslots: many\n", nil, `:3: slots cannot be "many"`},
		"one of a list":            {"slots: [4]\n", nil, `:1: "slots" has no value that is one word or text`},
		"one that is a mapping":    {"slots:\n  drain: 4s\n", nil, `:1: "slots" has no value that is one word or text`},
		"none":                     {"name: a\nslots:\n", nil, `:2: "slots" has no value that is one word or text`},
		"an alias":                 {"name: &a b\nlog-level: *a\n", nil, `:1: "name" has no value that is one word or text`},
		"a name twice":             {"slots: 4\nname: a\nslots: 5\n", nil, `:3: mapping key "slots" already defined at [1:1]`},
		"twice in two documents":   {"slots: 4\n---\nslots: 5\n", nil, `:3: "slots" is set already`},
		"no mapping":               {"- slots\n", nil, `:1: there is no name of a setting`},
		"no YAML":                  {"name: a\nslots: \"4\n", nil, `:2: `},
		"a value that another has": {"slots: many\n", map[string]string{"SPAWNMESH_SLOTS": "x"}, ""},
	} {
		got, path, err := load(t, tt.text, tt.env)

		require.Error(t, err, "%s: %v", name, got)
		require.Equal(t, commands.Validation, commands.CodeOf(err), name)
		if tt.says == "" {
			require.EqualError(t, err, `SPAWNMESH_SLOTS: slots cannot be "x"`)
			continue
		}
		require.Contains(t, err.Error(), path+tt.says, name)
	}
}

// Who else could have written the file decides nothing here.
func TestAFileThatOthersCanWriteIsNotRead(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "config.yaml")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.NoError(t, os.Chmod(path, 0o622))

	_, err := config.Load(pflag.NewFlagSet("", pflag.ContinueOnError), func(string) string { return "" }, path, "hub run")

	require.ErrorContains(t, err, path+" can be written by others; run: chmod go-w "+path)
}

// An error about flags names those that somebody else than the command line has set.
func TestAnErrorSaysWhoSetTheValue(t *testing.T) {
	t.Parallel()
	list := []config.Setting{{Name: "slots", Value: "0", Source: config.File, Where: "/d/config.yaml:3"}, {Name: "lease", Value: "1s", Source: config.Flag},
		{Name: "slot", Value: "1", Source: config.Variable, Where: "SPAWNMESH_SLOT"}}

	err := config.Explain(commands.Refuse(commands.Validation, "--slots is from 1 to 10000, --lease from 1s"), list)

	r, ok := err.(*commands.Refused)
	require.True(t, ok)
	require.Equal(t, `/d/config.yaml:3: slots is "0"`, r.Hint)
	require.NoError(t, config.Explain(nil, list))
}
