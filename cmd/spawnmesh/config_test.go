package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/internal/config"
)

// config show says of every setting what it is and where it comes from, and never a password.
func TestSettingsAreShown(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	require.NoError(t, os.WriteFile(file, []byte("slots: 7\nlease: 2m\nlink: 127.0.0.1:0\n"), 0o600))
	env := map[string]string{"SPAWNMESH_DRAIN": "3s", "DATABASE_URL": "postgres://mesh:hunter22@db:5432/mesh?password=hunter33&sslmode=require"}

	s := typedWith(t.Context(), env, "--data-dir", dir, "config", "show", "hub", "-o", "json", "--", "--name", "lab")

	require.Zero(t, s.code, s.err)
	var list []config.Setting
	require.NoError(t, json.Unmarshal([]byte(s.out), &list))
	by := map[string]config.Setting{}
	for _, one := range list {
		by[one.Name] = one
	}
	require.Equal(t, config.Setting{Name: "slots", Value: "7", Source: config.File, Where: file + ":1"}, by["slots"])
	require.Equal(t, config.Setting{Name: "lease", Value: "2m", Source: config.File, Where: file + ":2"}, by["lease"])
	require.Equal(t, config.Setting{Name: "drain", Value: "3s", Source: config.Variable, Where: "SPAWNMESH_DRAIN"}, by["drain"])
	require.Equal(t, config.Setting{Name: "name", Value: "lab", Source: config.Flag, Where: "--name"}, by["name"])
	require.Equal(t, config.Setting{Name: "heartbeat", Value: "10s", Source: config.Default}, by["heartbeat"])
	require.Equal(t, config.Setting{Name: "data-dir", Value: dir, Source: config.Flag, Where: "--data-dir"}, by["data-dir"])
	require.Equal(t, config.Setting{Name: "database-url", Value: "postgres://mesh@db:5432/mesh", Source: config.Variable, Where: "DATABASE_URL"}, by["database-url"])
	require.NotContains(t, s.out, "hunter")
	require.NotContains(t, by, "help")
	a := &app{getenv: func(string) string { return "" }}
	for _, r := range []*runner{a.hubRunner(), a.spokeRunner()} {
		r.flags.VisitAll(func(f *pflag.Flag) {
			require.Contains(t, by, f.Name)
		})
	}

	require.Equal(t, "(not shown)", withoutSecrets("host=db password=hunter22"))
	s = typedWith(t.Context(), map[string]string{"SPAWNMESH_DATABASE_URL": "host=db password=hunter22"}, "--data-dir", dir, "config", "show", "hub")
	require.NotContains(t, s.out+s.err, "hunter22")
	require.Regexp(t, `(?m)^slots +7 +file +\S+config\.yaml:1$`, s.out)
}

// What runs takes what it does not get by flags from the file, and what is wrong there is named
// with its line, by whoever reads it.
func TestSettingsOfTheFileCount(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ text, says, hint string }{
		"an address of no host here": {"name: lab\nlink: 192.0.2.1:0\n", "serving spokes on --link 192.0.2.1:0: ", `FILE:2: link is "192.0.2.1:0"`},
		"no slots":                   {"link: 127.0.0.1:0\nslots: 0\n", "--slots is from 1 to 10000", `FILE:2: slots is "0"`},
		"no number":                  {"slots: few\n", `FILE:1: slots cannot be "few"`, ""},
		"an unknown setting":         {"\nslotz: 4\n", `FILE:2: "slotz" is no setting of hub run`, "see: spawnmesh hub run --help"},
		"no level":                   {"log-level: loud\n", `--log-level is "loud", which is none of`, `FILE:1: log-level is "loud"`},
	} {
		dir := t.TempDir()
		file := filepath.Join(dir, "config.yaml")
		require.NoError(t, os.WriteFile(file, []byte(tt.text), 0o600))
		lines := [][]string{{"hub", "run"}, {"config", "check", "hub"}, {"config", "show", "hub"}}
		if name == "an address of no host here" {
			lines = lines[:1] // the settings say nothing of this host
		}
		for _, line := range lines {
			s := typed(t, append([]string{"--data-dir", dir}, line...)...)
			require.Equal(t, exitMisuse, s.code, "%s: %s", name, s.err)
			require.Contains(t, s.err, "spawnmesh: "+strings.ReplaceAll(tt.says, "FILE", file), name)
			require.Contains(t, s.err, strings.ReplaceAll(tt.hint, "FILE", file), name)
		}
		require.NoDirExists(t, filepath.Join(dir, "pg"))
	}
}

// An address that no hub can serve on is refused by the check in the words of a start, with its line.
func TestTheAddressesOfSettingsAreChecked(t *testing.T) {
	t.Parallel()
	for setting, says := range map[string]string{
		"link: nonsense:port":        `"nonsense:port" has no port number from 0 to 65535`,
		"link: 127.0.0.1:http":       `"127.0.0.1:http" has no port number`,
		"link: 127.0.0.1:65536":      `"127.0.0.1:65536" has no port number`,
		"link: \"127.0.0.1:\"":       `"127.0.0.1:" has no port number`,
		"link: 127.0.0.1":            `"127.0.0.1" is not of the form host:port`,
		"link: a..b:7422":            "lookup a..b: no such host",
		"api: a..b:7480":             "lookup a..b: no such host",
		"api: nonsense:port":         "lookup tcp/port: unknown port",
		"trace-endpoint: collector":  "it is no URL",
		"advertise: hub.example.org": "is not an address of the form HOST:PORT",
		"api-host: hub.example.org":  "nothing says where",
		"inbox-per-peer: 1KiB":       "--inbox-per-peer is at least 1MiB",
		"min-isolation: steel":       "--min-isolation steel is not a level",
		"heartbeat: 2h":              "--heartbeat from 100ms to 1h",
		"api-rate: 70000":            "--api-rate and --api-open from 1 to 65536",
		"log-format: xml":            `--log-format is "xml"`,
		"output-per-agent: 0":        "--output-per-agent",
	} {
		dir := t.TempDir()
		file := filepath.Join(dir, "config.yaml")
		text := setting + "\n"
		if !strings.HasPrefix(setting, "link") {
			text += "link: 127.0.0.1:0\n"
		}
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		check, start := typed(t, "--data-dir", dir, "config", "check", "hub"), typed(t, "--data-dir", dir, "hub", "run")
		require.Equal(t, exitMisuse, check.code, "%s: %s", setting, check.err)
		require.Contains(t, check.err, says, setting)
		require.Equal(t, exitMisuse, start.code, "%s: %s", setting, start.err)
		require.Contains(t, start.err, says, setting)
	}
}

// A hub and a spoke have settings of their own; which of them is asked for is said, or seen.
func TestSettingsAreOfARole(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	require.NoError(t, os.WriteFile(file, []byte("link: 127.0.0.1:0\n"), 0o600))
	at := func(args ...string) said { return typed(t, append([]string{"--data-dir", dir}, args...)...) }

	require.Contains(t, at("config", "check", "spoke").err, file+`:1: "link" is no setting of spoke run`)
	require.Contains(t, at("config", "check").err, "nothing has run in "+dir+" yet")
	require.Contains(t, at("config", "check", "hut").err, `"hut" is neither hub nor spoke`)
	require.Contains(t, at("config", "show", "hub", "spoke").err, "config show takes hub or spoke, and flags behind --")
	require.Contains(t, at("config", "show", "hub", "--", "--slotz", "1").err, "hub run has no flag --slotz")
	require.Contains(t, at("config", "show", "hub", "--", "x").err, `"x" is no flag of hub run`)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "nats"), 0o700))
	require.Equal(t, said{"", "hub run can run with these settings\n", 0}, at("config", "check"))
	require.Contains(t, at("config", "show", "--", "--slots", "3").out, "--slots")
	require.NoError(t, os.Chmod(file, 0o666))
	require.Contains(t, at("config", "check").err, file+" can be written by others; run: chmod go-w "+file)
}

// What a start would stop at is found by the check: files that are not there, or not what they are to be.
func TestTheFilesOfSettingsAreChecked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	require.NoError(t, os.WriteFile(file, []byte("link: 127.0.0.1:0\napi: 127.0.0.1:0\napi-cert: /nope\napi-key: /nope\n"), 0o600))
	for _, line := range []string{"config check hub", "hub run"} {
		s := typed(t, append([]string{"--data-dir", dir}, strings.Fields(line)...)...)
		require.Equal(t, exitMisuse, s.code, "%s: %s", line, s.err)
		require.Contains(t, s.err, "reading the file of --api-cert: open /nope: no such file or directory")
		require.Contains(t, s.err, file+`:3: api-cert is "/nope"`)
	}
	byFlag := typed(t, "--data-dir", t.TempDir(), "hub", "run", "--link", "127.0.0.1:0", "--api", "127.0.0.1:0", "--api-cert", "/nope", "--api-key", "/nope")
	require.Equal(t, exitMisuse, byFlag.code)
	require.Contains(t, byFlag.err, "name a file in PEM that this user can read")
	require.NoError(t, os.WriteFile(file, []byte("link: 127.0.0.1:0\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "policy.yaml"), []byte("runtimez: [exec]\n"), 0o600))
	require.Equal(t, exitMisuse, typed(t, "--data-dir", dir, "config", "check", "spoke").code)
}
