package spoke_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
)

// A spoke that comes back after the shims of its agents have died ends what is left of
// each, by what its database knows: it does not believe what an agent has written into its
// directory. After a restart of the host it looks for nothing.
func TestASpokeThatComesBackBelievesItsDatabase(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	s, notes := m.Spokes["attic"], t.TempDir()
	innocent := sleeper(t, m)
	escape := func(name, spec string) string {
		return m.Spawn(t, "attic", "sh", "-c", `setsid sh -c 'echo up >"$0.up"; while [ ! -e "$0.end" ]; do sleep 0.02; done; echo over >"$0.over"' "$0" & `+
			`until [ -e "${0%/*}/go" ]; do sleep 0.02; done; sed -i "s/}$/,$1}/" ../control/spec.json; echo >"$0.told"; kill -9 $PPID; sleep 600`,
			filepath.Join(notes, name), spec)
	}
	boot := escape("boot", `"boot_id":"00000000-0000-0000-0000-000000000000"`)
	borrowed := escape("borrowed", `"marker":"`+markerOf(t, s, innocent)+`"`)
	restarted := escape("restarted", `"a":1`)
	said := func(what string) bool { _, err := os.Stat(filepath.Join(notes, what)); return err == nil }
	for name, task := range map[string]string{"boot": boot, "borrowed": borrowed, "restarted": restarted} {
		m.Await(t, task, commands.Running)
		meshtest.Await(t, "its child", func() bool { return said(name + ".up") })
	}
	m.Stop(t, "attic")
	s.Exec(t, `UPDATE sessions SET boot_id = 'earlier' WHERE task = $1`, restarted)
	require.NoError(t, os.WriteFile(filepath.Join(notes, "go"), nil, 0o600))
	meshtest.Await(t, "the end of the shims", func() bool { return said("boot.told") && said("borrowed.told") && said("restarted.told") })

	m.Start(t, "attic")

	for _, task := range []string{boot, borrowed, restarted} {
		var r commands.Result
		require.NoError(t, json.Unmarshal(m.Wait(t, task).Result, &r))
		require.Equal(t, commands.Interrupted, r.Outcome)
		require.Equal(t, task == restarted, strings.HasPrefix(r.Exit.Error, "the shim ended without a record; the host was restarted; "), r.Exit.Error)
		require.Regexp(t, `; the spoke saw it last [1-9]\d*s before it found this$`, r.Exit.Error)
		require.Equal(t, task != restarted, len(r.Reaped) > 0)
	}
	require.Equal(t, commands.Running, m.Agent(t, innocent).State)
	for _, name := range []string{"boot", "borrowed", "restarted"} {
		require.NoError(t, os.WriteFile(filepath.Join(notes, name+".end"), nil, 0o600))
	}
	meshtest.Await(t, "the end of the one that nobody looked for", func() bool { return said("restarted.over") })
	require.False(t, said("boot.over") || said("borrowed.over"))
	m.Hub.Do(t, "POST", "/api/v1/tasks/"+innocent+"/kill", map[string]any{"reason": "enough", "grace_ms": 0}, nil)
	m.Wait(t, innocent)
	m.Check(t)
}

// markerOf reads the marker of a running agent out of its directory.
func markerOf(t *testing.T, s *meshtest.Spoke, task string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(s.Dir, "agents", task, "1", "control", "spec.json"))
	require.NoError(t, err)
	var spec struct {
		Marker string `json:"marker"`
	}
	require.NoError(t, json.Unmarshal(raw, &spec))
	return spec.Marker
}

// An agent that ends while its spoke is away ended then, and not when the spoke came back.
func TestAnAgentEndsWhenItEnds(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	s, end := m.Spokes["attic"], filepath.Join(t.TempDir(), "end")
	id := m.Spawn(t, "attic", "sh", "-c", `until [ -e "$0" ]; do sleep 0.02; done`, end)
	m.Await(t, id, commands.Running)
	m.Stop(t, "attic")
	require.NoError(t, os.WriteFile(end, nil, 0o600))
	var record struct {
		EndedAt time.Time `json:"ended_at"`
	}
	meshtest.Await(t, "the record of its end", func() bool {
		raw, err := os.ReadFile(filepath.Join(s.Dir, "agents", id, "1", "control", "exit.json"))
		return err == nil && json.Unmarshal(raw, &record) == nil
	})

	m.Start(t, "attic")
	v := m.Wait(t, id)
	m.AwaitLink(t, "attic")

	var r commands.Result
	require.NoError(t, json.Unmarshal(v.Result, &r))
	require.Equal(t, record.EndedAt.UnixMilli(), r.EndedAt)
	require.Equal(t, r.EndedAt, v.EndedAt.UnixMilli())
	require.True(t, v.EndedTold.After(*v.EndedAt))
	require.NotContains(t, s.Log.String(), `msg="agent goes on"`)
	require.EqualValues(t, 10_000, m.View(t, "attic").LeaseMS, "the hub knows for how long an agent goes on without its spoke")
	m.Check(t)
}

// The door of an agent stays shut after a restart while it is not known what the agent must not say.
func TestAnAgentWhoseSecretsAreNotKnownHasNoDoor(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	s := m.Spokes["attic"]
	id := m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeExec, Argv: []string{"/bin/sleep", "300"}}})
	meshtest.Await(t, "the agent to run", func() bool { return m.Agent(t, id).State == commands.Running })
	m.Stop(t, "attic")
	allowed, err := os.ReadFile(policy.File(s.Dir))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(policy.File(s.Dir), []byte(meshtest.Loose("version: 1\nruntimes: [exec]\ncommands: [/bin/true]\n")), 0o600))

	m.Start(t, "attic")

	meshtest.Await(t, "the door to stay shut", func() bool {
		return strings.Contains(s.Log.String(), "an agent that goes on cannot talk to this spoke") && strings.Contains(s.Log.String(), "what it must not say is not known")
	})
	require.NoError(t, os.WriteFile(policy.File(s.Dir), allowed, 0o600))
	s.Do(t, "POST", "/api/v1/policy/reload", nil, nil)
	require.NoError(t, doorOf(s, id, 1).Do(t.Context(), "GET", "/v1/attempt", nil, nil))
	kill(t, m, id, 0)
	require.True(t, m.Wait(t, id).State.Terminal())
}
