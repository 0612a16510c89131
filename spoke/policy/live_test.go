package policy_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
)

func TestAReloadReplacesThePolicyWhole(t *testing.T) {
	t.Parallel()
	dir := write(t, map[string]string{"policy.yaml": "version: 1\nruntimes: [exec]\ncommands: [a]\nenv_from_file: agents.env\n", "agents.env": "TOKEN=one\n"})
	live, err := policy.Open(dir)
	require.NoError(t, err)
	first := live.Now()
	a, b := &commands.Spawn{Runtime: commands.RuntimeExec, Argv: []string{"a"}}, &commands.Spawn{Runtime: commands.RuntimeExec, Argv: []string{"b"}}

	require.NoError(t, os.WriteFile(policy.File(dir), []byte("version: 1\nruntimes: [exec]\ncommands: [b]\nenv_from_file: agents.env\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "agents.env"), []byte("TOKEN=two\n"), 0o600))
	require.Nil(t, live.Now().Judge(a, nil), "nothing changes by itself")
	change, err := live.Reload("")

	require.NoError(t, err)
	require.Equal(t, policy.Change{Policy: live.Now().ID(), Was: first.ID()}, change)
	require.NotEqual(t, change.Was, change.Policy)
	require.NotNil(t, live.Now().Judge(a, nil))
	require.Nil(t, live.Now().Judge(b, nil))
	require.Equal(t, "two", live.Now().Exec(b, nil).Host["TOKEN"])
	require.Equal(t, "one", first.Exec(a, nil).Host["TOKEN"], "who holds the one before keeps it whole")
}

func TestABadFileKeepsThePolicy(t *testing.T) {
	t.Parallel()
	good := "version: 1\nruntimes: [exec]\ncommands: [a]\nenv_from_file: agents.env\n"
	tests := map[string]map[string]string{
		"a mistake in the policy":         {"policy.yaml": "version: 1\ncommands: [b]\nnonsense: 1\n"},
		"a mistake in a file that it has": {"policy.yaml": "version: 1\nruntimes: [exec]\ncommands: [b]\nenv_from_file: agents.env\n", "agents.env": "nonsense\n"},
		"a file that is not there":        {"policy.yaml": "version: 1\nruntimes: [exec]\ncommands: [b]\nenv_from_file: other.env\n"},
	}
	for name, files := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := write(t, map[string]string{"policy.yaml": good, "agents.env": "TOKEN=one\n"})
			live, err := policy.Open(dir)
			require.NoError(t, err)
			before := live.Now()
			for name, text := range files {
				require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
			}

			_, err = live.Reload("")

			require.ErrorContains(t, err, policy.File(dir))
			require.Same(t, before, live.Now())
		})
	}
}

// What was read once more, and is not what somebody has agreed to, is not put in force.
func TestAnotherVersionThanIsExpectedKeepsThePolicy(t *testing.T) {
	t.Parallel()
	dir := write(t, map[string]string{"policy.yaml": "version: 1\nruntimes: [exec]\ncommands: [a]\n"})
	live, err := policy.Open(dir)
	require.NoError(t, err)
	before := live.Now()
	require.NoError(t, os.WriteFile(policy.File(dir), []byte("version: 1\nruntimes: [exec]\ncommands: [b]\n"), 0o600))
	there, err := policy.Load(dir)
	require.NoError(t, err)

	_, err = live.Reload(before.ID())

	require.Equal(t, commands.Conflict, commands.CodeOf(err), "%v", err)
	require.Same(t, before, live.Now())
	_, err = live.Reload(there.ID())
	require.NoError(t, err)
	require.Equal(t, there.ID(), live.Now().ID())
}

func TestBoundsAreTheNarrower(t *testing.T) {
	t.Parallel()
	none, err := policy.Parse([]byte("version: 1\n"))
	require.NoError(t, err)
	p, err := policy.Parse([]byte("version: 1\nlimits: {memory: 2GiB, pids: 100}\n"))
	require.NoError(t, err)

	for asked, want := range map[int64]int64{0: 2 << 30, 1: 1, 2<<30 - 1: 2<<30 - 1, 2 << 30: 2 << 30, 3 << 30: 2 << 30} {
		require.Equal(t, want, p.Memory(asked))
		require.Equal(t, asked, none.Memory(asked))
	}
	for asked, want := range map[int]int{0: 100, 1: 1, 100: 100, 101: 100} {
		require.Equal(t, want, p.Pids(asked))
		require.Equal(t, asked, none.Pids(asked))
	}
	same, err := policy.Parse([]byte("version: 1\nlimits: {memory: 1048576, pids: 100}\n"))
	require.NoError(t, err)
	require.EqualValues(t, 1<<20, same.Memory(0))
}

func TestRevocationAndLease(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		text  string
		kill  bool
		lease time.Duration
	}{
		"nothing said":      {"", true, 24 * time.Hour},
		"kill":              {"on_revoke: kill\n", true, 24 * time.Hour},
		"finish, 5 minutes": {"on_revoke: finish\nconnection_lease: 5m\n", false, 5 * time.Minute},
		"a week in days":    {"connection_lease: 7d\n", true, 7 * 24 * time.Hour},
		"a day and a half":  {"connection_lease: 36h\n", true, 36 * time.Hour},
		"a week in hours":   {"connection_lease: 168h\n", true, 7 * 24 * time.Hour},
	}
	for name, tt := range tests {
		p, err := policy.Parse([]byte("version: 1\n" + tt.text))

		require.NoError(t, err, name)
		require.Equal(t, tt.kill, p.KillOnRevoke(), name)
		require.Equal(t, tt.lease, p.Lease(), name)
	}
}

func TestASizeMayHaveAUnit(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{"20000": 20000, "2MiB": 2 << 20, "'64KiB'": 64 << 10} {
		p, err := policy.Parse([]byte("version: 1\nlimits: {output: " + text + "}\n"))

		require.NoError(t, err, text)
		require.Equal(t, want, p.Limits.Kept(), text)
	}
}

// What was safe when the spoke started is looked at again with every reload.
func TestAPolicyThatOthersCouldHaveReplacedIsNotPutInForce(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	dir := filepath.Join(base, "data")
	secrets := filepath.Join(base, "secrets")
	require.NoError(t, os.Mkdir(dir, 0o700))
	require.NoError(t, os.Mkdir(secrets, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(secrets, "env"), []byte("TOKEN=one\n"), 0o600))
	require.NoError(t, os.WriteFile(policy.File(dir), []byte("version: 1\nenv_from_file: "+filepath.Join(secrets, "env")+"\n"), 0o600))
	live, err := policy.Open(dir)
	require.NoError(t, err)
	before := live.Now()

	for _, place := range []string{dir, secrets, base} {
		require.NoError(t, os.Chmod(place, 0o707))

		_, err := live.Reload("")

		require.ErrorContains(t, err, place+" can be written by everybody; run: chmod o-w "+place)
		require.Same(t, before, live.Now())
		require.NoError(t, os.Chmod(place, 0o700))
	}
	_, err = live.Reload("")
	require.NoError(t, err)
}
